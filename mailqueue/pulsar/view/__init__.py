"""What a queue over Pulsar holds: its listing, its deletions, its figures."""
