"""Numbered migrations: their files, plan, history, adoption and verification, as values. Pure."""
