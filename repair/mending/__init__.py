"""Carries out decisions: second looks, fixes, counters and undo."""
