"""The project's own texts of CQL: no part of mailmend."""

import os

KEYSPACE = os.environ["MAILMEND_KEYSPACE"]
