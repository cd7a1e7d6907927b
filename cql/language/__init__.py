"""CQL as a language: text read into the statements of `model.ddl`, and statements written as text."""
