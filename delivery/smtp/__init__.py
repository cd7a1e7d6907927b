"""SMTP in both directions."""
