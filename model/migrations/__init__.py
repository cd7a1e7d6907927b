"""Schema migrations as values: files, history, plan, verification, adoption."""
