"""What repairs keep: runs, before-images, lags, leases."""
