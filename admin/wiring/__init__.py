"""The only package that knows which adapter stands behind which port: of a cluster, and of a queue beside it."""
