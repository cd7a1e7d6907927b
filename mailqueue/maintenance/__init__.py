"""What keeps a queue in order besides serving it: due mails, sweeps, renewals, reconciling, restoring."""
