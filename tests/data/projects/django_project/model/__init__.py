"""The project's own models: no part of mailmend."""
