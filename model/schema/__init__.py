"""Tables and keyspaces as values, and the statements that change them."""
