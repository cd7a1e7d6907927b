"""Advice on settings, computed from measured traffic."""
