"""Writing mail: the source of truth first, then its projections."""
