"""The HTTP side of a server of deliveries: recipients, suspensions, policies, and why a mail waits."""
