"""What a queue does with mails, one module for each operation: in, out, away, again."""
