"""CQL as a language: text read into the statements of `cql.statements`, and statements written as text."""
