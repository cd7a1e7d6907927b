"""CQL as a language: text read into the statements of `model.schema.statements`, and statements written as text."""
