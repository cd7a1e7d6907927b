"""Delivery of mails from any mail queue: what is picked up when, by which servers it goes, and what comes again."""
