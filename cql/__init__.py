"""CQL: its language, the driver, schemas, migrations. The only package that imports the driver."""
