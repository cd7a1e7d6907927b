"""Pure decisions: what a pair of rows means, and what is to be written."""
