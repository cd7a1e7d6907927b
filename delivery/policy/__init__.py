"""Pickup policies: which mail may be attempted now, and what it waits for. Pure, apart from the file."""
