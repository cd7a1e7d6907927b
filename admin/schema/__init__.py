"""`mailmend schema`: plan, apply, verify, adopt, lint, advise, export."""
