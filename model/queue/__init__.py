"""Values and rules of the mail queue."""
