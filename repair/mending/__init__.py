"""Second look, fixes, undo: the decisions carried out."""
