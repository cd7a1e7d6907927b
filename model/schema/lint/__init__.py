"""Rules about tables that Cassandra takes without a word and that hurt later: pure, each a value with its reason.

A rule looks at a schema, the statements that made it, and what is known beside; it computes or stays silent, it never
guesses. `model.schema.lint.rules` lists them all; files and servers are read elsewhere.
"""
