"""SMTP in: the listener, its connections, and the mails that it takes."""
