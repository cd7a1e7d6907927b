"""Migrations of a keyspace: planned by reading, carried out under a lease, recorded in the ledger."""
