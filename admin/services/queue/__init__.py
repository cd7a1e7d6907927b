"""What a person can ask of the distributed mail queue: each is one function from a request to a result."""
