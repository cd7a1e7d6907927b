"""The HTTP interface of a server of jobs."""
