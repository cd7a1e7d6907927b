"""Cleanup of a queue's tables: rows before the browse start, and marks that hide nothing."""
