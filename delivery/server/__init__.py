"""The server of deliveries: it takes mails from the queue, attempts them, and journals the results."""
