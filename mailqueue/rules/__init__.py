"""The rules of the mail queue: slices, starts, positions, sizes, deletions, advice. Pure."""
