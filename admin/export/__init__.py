"""A schema for people to read: a page with a table for each table, and a drawing of truths and their projections.

Pure: from the model's values to texts. `admin.cli.schema.export` writes the files.
"""
