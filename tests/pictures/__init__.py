"""The pictures of README and docs/: drawn from packages, enums and runs of the commands (docs/adr/0064)."""
