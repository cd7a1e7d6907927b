"""What mailmend promises about speed, measured side by side in one run; nothing here is a test of time."""
