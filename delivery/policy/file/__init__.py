"""The policy file: its nodes, its fields, its errors, its JSON schema."""
