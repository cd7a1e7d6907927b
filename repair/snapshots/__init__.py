"""Checks that read a node's snapshot files instead of the cluster (docs/adr/0091)."""
