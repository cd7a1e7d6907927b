"""The sweep: move the browse start, clean up to it, renew what grows old."""
