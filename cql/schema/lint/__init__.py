"""Rules that find mistakes in a schema before a server does. Pure."""
