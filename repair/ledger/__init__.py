"""The ledger's tables in use: runs, before-images, lags, leases, jobs and tasks."""
