"""Checking and repairing projections, and writing mail: pure decisions, and the code that carries them out."""
