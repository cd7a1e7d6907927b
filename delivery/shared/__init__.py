"""What all servers of one queue share: limits, quotas, orders."""
