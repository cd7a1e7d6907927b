"""The rules of delivery: what is tried when, what becomes of an attempt, and what the sender is told."""
