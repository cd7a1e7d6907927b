"""Finding inconsistencies: a full scan on this machine, or lookups by key."""
