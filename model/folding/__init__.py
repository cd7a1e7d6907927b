"""A schema after each statement, as strict as a server: one module for each kind of thing that a statement changes."""
