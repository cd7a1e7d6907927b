"""The rules by which mails are picked up for delivery: how fast, how many at once, and what waits for what."""
