"""The project's own pages for its staff: no part of mailmend."""
