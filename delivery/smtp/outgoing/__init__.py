"""SMTP out: next hops, connections, content as the next server can take it."""
