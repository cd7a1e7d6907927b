"""Results of the queue's services as documents. The names in their JSON are a contract (DESIGN section 5)."""
