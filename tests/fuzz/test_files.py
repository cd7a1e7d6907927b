"""Files and records that come from elsewhere, spoilt: CQL, policies, James's JSON, removed mails, mail folders."""

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.admin.queue.kept_mails import FORMAT, mails_on_their_way, read_removed_mails
from mailmend.cql.language.parser import parse
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.mailqueue.codec import attribute_value, payload_of, queued_of
from mailmend.mailqueue.pulsar.deletions import deleted_in, filter_of, progress_in
from mailmend.mailqueue.pulsar.topics import pulsar_payload_of, pulsar_queued_of
from mailmend.repair.store.mail_files import Found, kind_of, mail_in, mail_of
from tests.support.checkout import CHECKOUT
from tests.support.fuzzing import fuzzing, nested, result_or_our_error, spoilt_bytes, spoilt_document, spoilt_text
from tests.support.queued_mails import queued_mail

NOW = datetime(2026, 5, 1, tzinfo=UTC)
LONG = "9" * 5_000
CQL = """CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3} AND durable_writes = true;
CREATE TYPE k.u (a int, b frozen<map<text, vector<float, 3>>>);
CREATE TABLE IF NOT EXISTS k."T" (a timeuuid, b bigint, c set<text>, d frozen<u>, s text static,
  PRIMARY KEY ((a), b)) WITH CLUSTERING ORDER BY (b DESC) AND gc_grace_seconds = 864000
  AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': 1};
CREATE MATERIALIZED VIEW k.v AS SELECT a, b FROM k."T" WHERE a IS NOT NULL AND b IS NOT NULL PRIMARY KEY (b, a);
-- lint: ignore T1
ALTER TABLE k."T" ADD e int; /* a comment */
INSERT INTO k."T" (a, b) VALUES (now(), 0x1f) USING TTL 5 AND TIMESTAMP 1;
CREATE FUNCTION f (x int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ return x; $$;
"""
CQL_WORDS = (
    *"();,.{}<>[]'\"$=+-*/:?%\\ \n\t\x00\ud800\u2028",
    *("--", "/*", "*/", "$$", "IF", "NOT", "EXISTS", "frozen<", "WITH", "AND", "0x", "1e", "1e999999", LONG, "''"),
    *(nested("frozen<", ">", "int"), nested("(", ")"), nested("{1:", "}", "1"), nested("[", "]")),
)
PAGE = (CHECKOUT / "docs" / "policy-file.md").read_text(encoding="utf-8")
POLICIES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
YAML_WORDS = (
    *":-[]{}&*!|>%@`'\"#,?/ \n\t\x00\ud800\u2028",
    *("  ", "- ", ": ", "<<: *a", "&a ", "*a", "!!python/object:os.system", "? ", "1e999", ".inf", ".nan", LONG, "0/0"),
    *("-1", "1/0", "2001-01-01", "yes", "null", "~", "/(a+)+$/", "/[/", "[::1]/999", "&group", "\n...\n", "\n---\n"),
    *(nested("[", "]"), nested("{a: ", "}", "1"), "\n" * 3_000),
)
PAYLOAD = json.loads(payload_of(queued_mail(1)))
PULSAR = json.loads(pulsar_payload_of(queued_mail(1)))
KEPT = {
    "format": FORMAT,
    "queue": "spool",
    "enqueued_at": NOW.isoformat(),
    "due_at": NOW.isoformat(),
    "where": "delayed",
    "payload": payload_of(queued_mail(1)).decode(),
    "content": "eA==",
}
JSON_BYTES = (
    *(bytes([one]) for one in b'{}[]":,\\\x00\xff'),
    b"\\ud800",
    b"1e999",
    LONG.encode(),
    nested("[", "]").encode(),
)
MBOX = b"""From ann@example.org Fri Mar  6 10:11:12 2026
Date: Fri, 6 Mar 2026 10:11:12 +0100
Subject: =?utf-8?q?one?=
Status: RO
X-Mozilla-Status: 0001
X-Gmail-Labels: a,"b c"
Content-Type: text/plain; charset=utf-8
Content-Length: 17

one
>From quoted

From - Fri Mar  6 10:11:12 2026
Message-ID: <x@y>

two
"""
EMLX = b"""28
Subject: x

one
From me
two
<?xml version="1.0"?>
<plist version="1.0"><dict><key>flags</key><integer>8590195713</integer>
<key>date-received</key><integer>1600000000</integer></dict></plist>
"""
MAIL_BYTES = (
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\x00",
        b"\xff",
        b":",
        b" ",
        b"\t",
        b"From ",
        b"\nFrom ",
        b"\n\n",
        b"\x1f\x8b",
        b"BZh",
        b"<",
    ),
    *(b"Date: Fri, 99 Foo 99999 99:99:99 +9999", b"9" * 5_000, b"Status: ", b"X-Mozilla-Status: zzzz", b"=?x?b?%%?="),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"Date: Thu, 1 Jan 1970 00:00:00 -0000",
        b"\nContent-Length: 1",
        b"0",
        b"x" * 3_000,
        b"Date: 1 Jan 0000 00:00 +2400",
    ),
)


@fuzzing(2_000)
@given(spoilt_text(CQL, CQL_WORDS))
def test_cql_is_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: parse(text))


@fuzzing(1_000)
@given(st.sampled_from(POLICIES).flatmap(lambda text: spoilt_text(text, YAML_WORDS)))
@example("policies: 1\n")
def test_a_policy_file_is_read_or_refused(text: str) -> None:
    result_or_our_error(lambda: policies_of(text, "policies.yaml"))


def test_what_is_spoilt_is_good_before(tmp_path: Path) -> None:
    """Else a fuzzer would only see one refusal."""
    file = tmp_path / "kept"
    file.write_bytes(gzip.compress(json.dumps(KEPT).encode(), mtime=0))
    mbox = tmp_path / "mbox"
    mbox.write_bytes(MBOX)

    emlx = tmp_path / "one.emlx"
    emlx.write_bytes(EMLX)
    assert [isinstance(item, Found) for item in mail_in(emlx, kind_of(emlx))] == [True]
    assert all(policies_of(text, "policies.yaml") for text in POLICIES)
    assert len(parse(CQL)) == 7
    assert [mail.content for mail in read_removed_mails(file)] == [b"x"]
    assert queued_of(json.dumps(PAYLOAD).encode()) == pulsar_queued_of(json.dumps(PULSAR).encode())
    assert len([item for item in mail_in(mbox, kind_of(mbox)) if isinstance(item, Found)]) == 2


@fuzzing(2_000)
@given(
    spoilt_document(PAYLOAD).map(lambda document: json.dumps(document).encode())
    | spoilt_document(PULSAR).map(lambda document: json.dumps(document).encode())
    | spoilt_bytes(json.dumps(PAYLOAD).encode(), JSON_BYTES)
)
def test_json_of_james_is_read_or_refused(payload: bytes) -> None:
    for read in (queued_of, pulsar_queued_of, filter_of):
        result_or_our_error(lambda read=read: read(payload))  # type: ignore[misc]
    for read_text in (attribute_value, deleted_in, progress_in):
        result_or_our_error(lambda read=read_text: read(payload.decode("utf-8", "replace")))  # type: ignore[misc]


@fuzzing(800)
@given(
    spoilt_document(KEPT).map(lambda document: gzip.compress(json.dumps(document).encode() + b"\n", mtime=0))
    | spoilt_bytes(json.dumps(KEPT).encode(), JSON_BYTES).map(lambda line: gzip.compress(line, mtime=0))
    | spoilt_bytes(gzip.compress(json.dumps(KEPT).encode(), mtime=0), (b"\x00", b"\xff", b"\x1f\x8b\x08"))
)
def test_removed_mails_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "removed.jsonl.gz"
    file.write_bytes(content)

    result_or_our_error(lambda: list(read_removed_mails(file, lambda: None)))


@fuzzing(600)
@given(
    st.lists(
        spoilt_document({**KEPT, "was": str(queued_mail(1).enqueue_id), "attempts": 0}).map(json.dumps), max_size=2
    )
    | st.lists(spoilt_text(json.dumps(KEPT), (*'{}[]":,', "\x00", LONG)), max_size=2)
)
def test_the_journal_of_a_move_is_read_or_refused(tmp_path: Path, lines: list[str]) -> None:
    head = json.dumps({"format": "queue-move/1", "move": "x"})
    text = "".join(f"{line}\n" for line in (head, *lines))
    (tmp_path / "spool-move-1.jsonl").write_text(text, encoding="utf-8", errors="replace")

    result_or_our_error(lambda: list(mails_on_their_way(tmp_path)))


@fuzzing(1_500)
@given(
    spoilt_bytes(MBOX, MAIL_BYTES) | spoilt_bytes(EMLX, (*MAIL_BYTES, b"<", b">", b"flags", b"<?xml")),
    st.sampled_from(["mbox", "one.eml", "one.emlx"]),
)
def test_a_mail_folder_is_read_or_refused(tmp_path: Path, content: bytes, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)

    def read() -> int:
        items = list(mail_in(file, kind_of(file)))
        return len([mail_of(item, NOW) for item in items if isinstance(item, Found)])

    result_or_our_error(read)
