"""Pulsar itself: its client, its admin API, its topics and their policies."""
