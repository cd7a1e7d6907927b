"""`mailmend delivery`, `policy` and `suspend`."""
