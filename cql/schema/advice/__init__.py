"""Advice on compaction, worked out from measured traffic. Pure."""
