"""The HTTP side of the server of jobs: James's administrative tasks."""
