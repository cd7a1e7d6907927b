"""The message store: its writes, the truth first, and the loading of mail files."""
