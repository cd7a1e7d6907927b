"""`mailmend queue`."""
