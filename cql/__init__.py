"""Everything that speaks CQL: the only package that knows the driver."""
