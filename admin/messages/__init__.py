"""`mailmend check`, `repair`, `undo`, `apply`, `runs` and `load`."""
