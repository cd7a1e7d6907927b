"""Why a server did not start, read from its logs; and the bytes that ask a node whether it answers."""

import struct
from pathlib import Path

import pytest

from mailmend.admin.local.processes import frame, login_body, query_body, startup_body
from mailmend.admin.local.server import tail, why_ended

LOG = """INFO  [main] 2026-11-20 19:00:36,000 A.java:1 - fine
ERROR [main] 2026-11-20 19:00:36,100 B.java:2 - first trouble
java.lang.RuntimeException: of no interest
ERROR [main] 2026-11-20 19:00:36,200 CassandraDaemon.java:900 - Exception encountered during startup
org.apache.cassandra.exceptions.ConfigurationException: Invalid yaml: [nonsense]
\tat org.apache.cassandra.config.X.y(X.java:1)
INFO  [main] 2026-11-20 19:00:36,300 A.java:1 - going down
"""


def test_the_why_ended_is_quoted_with_its_exception() -> None:
    exception = "org.apache.cassandra.exceptions.ConfigurationException: Invalid yaml: [nonsense]"
    assert why_ended(LOG, "") == f"Exception encountered during startup {exception}"


@pytest.mark.parametrize("following", ["\tat a.b(C.java:1)", "INFO  [main] 2026 A.java:1 - next", "WARN  [x] y", ""])
def test_an_error_without_exception_stands_alone(following: str) -> None:
    assert why_ended(f"ERROR [main] 2026 A.java:1 - out of luck\n{following}", "") == "out of luck"


@pytest.mark.parametrize(
    ("log", "printed", "why"),
    [
        (
            "fine\n2026 [error] <0.9> out of luck\n2026 [error] consequence",
            "starting\n",
            "2026 [error] <0.9> out of luck",
        ),
        ("2026 [error] logged", "BOOT\nERROR: printed\n{exit,x}", "ERROR: printed"),
        ("", "Exception in thread main\n\tat a.b(C.java:1)\n", "Exception in thread main"),
        (
            "INFO  [main] x - fine",
            "Unknown option\nError: Could not create the JVM.\n",
            "Error: Could not create the JVM.",
        ),
        ("", "erl: 57: exec: not found\n\n", "erl: 57: exec: not found"),
        ("all is well", "", "it printed nothing"),
    ],
    ids=["logged", "printed-first", "java", "java-itself", "last-line", "silence"],
)
def test_the_first_complaint_is_the_reason(log: str, printed: str, why: str) -> None:
    assert why_ended(log, printed) == why


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "none") == ""


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    long = tmp_path / "long.log"
    long.write_text("x" * 1_000_000 + "the end", encoding="utf-8")
    assert tail(long).endswith("the end")
    assert len(tail(long)) < 500_000


def test_a_request_is_a_header_and_a_body() -> None:
    assert frame(0x05) == bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])
    assert frame(0x01, b"xy")[-6:] == b"\x00\x00\x00\x02xy"


def test_the_bodies_are_those_of_the_protocol() -> None:
    assert startup_body() == b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0"
    assert login_body("ann", "pw") == struct.pack(">i", 7) + b"\0ann\0pw"
    assert query_body("SELECT", 5) == b"\x00\x00\x00\x06SELECT\x00\x05\x00"
