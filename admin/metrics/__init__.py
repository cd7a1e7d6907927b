"""Metrics of runs, jobs and the ledger; alerts and a dashboard over them."""
