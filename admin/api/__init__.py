"""The API under `/v1`, and James's routes of mail queues: the commands' services, over HTTP."""
