"""The mail queue over Pulsar: topics carry and list it, a blob store holds its bytes. It needs no tables."""
