"""A mail on its way: recipients, attempts, results, notices, its envelope."""
