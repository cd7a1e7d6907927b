"""What stands behind migrations, as values: files and their chain, the history, plans, adoption, what a look tells."""
