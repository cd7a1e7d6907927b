"""Lint rules: they find what Cassandra accepts silently and what causes trouble later. Pure.

A rule examines a schema, the statements that made it, and further known facts. Where a fact is
missing it reports nothing; it never guesses. `cql.schema.lint.rules` lists all rules; files and
servers are read elsewhere.
"""
