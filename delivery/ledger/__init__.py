"""Rows of the ledger that deliveries write: orders, servers, rates, attempts."""
