"""The distributed mail queue: to come; the package holds its place in the house and in the layers."""
