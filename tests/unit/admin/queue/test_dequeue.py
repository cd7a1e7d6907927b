"""`mailmend queue dequeue`: into a folder, or to a command whose exit code decides."""

import json
import os
import stat
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mailmend.admin.queue.dequeue import ConsumerOutcome, consumer_in_command, outcome_of
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.model.ids import QueueName
from tests.support.queue_commands import QueueShell, ids_in
from tests.support.queues import CONTENT


def consumer(folder: Path, program: str) -> str:
    file = folder / "consumer.py"
    file.write_text(program, encoding="utf-8")
    return f"{sys.executable} {file}"


def test_into_a_folder_message_and_envelope(queue: QueueShell, tmp_path: Path) -> None:
    """Both, for their owner alone; then the mail is gone from the queue."""
    (mail,) = queue.put("one", state="transport")

    ended = queue("dequeue", "--dir", str(tmp_path / "out"), "--json")

    message, envelope = tmp_path / "out" / f"{mail}.eml", tmp_path / "out" / f"{mail}.json"
    assert (ended.code, ended.json["taken"], ended.json["acked"]) == (0, 1, 1)
    assert message.read_bytes() == CONTENT
    document = json.loads(envelope.read_text())
    assert (document["name"], document["state"], document["recipients"], document["attempts"]) == (
        "one",
        "transport",
        ["bob@example.org"],
        0,
    )
    assert stat.S_IMODE(message.stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / "out").iterdir() if file.name.startswith(".")] == []
    assert queue.listed() == []
    assert queue.delivers_nothing()


def test_a_limit_is_kept(queue: QueueShell, tmp_path: Path) -> None:
    """Not one more, whatever the prefetch is; the others are delivered later."""
    queue.put(*"abcde")

    ended = queue("dequeue", "--dir", str(tmp_path), "--limit", "2", "--prefetch", "5", "--json")

    assert ended.json["taken"] == 2
    assert len(queue.names()) == 3
    assert sorted(queue.delivered(3)) == sorted(queue_left(tmp_path, "abcde"))


def queue_left(folder: Path, names: str) -> set[str]:
    return set(names) - {json.loads(file.read_text())["name"] for file in folder.glob("*.json")}


def test_an_empty_queue_ends_the_command(queue: QueueShell, tmp_path: Path) -> None:
    before = queue.now

    ended = queue("dequeue", "--dir", str(tmp_path), "--wait", "7s", "--json")

    assert (ended.code, ended.json["taken"]) == (0, 0)
    assert (queue.now - before).total_seconds() >= 7


def test_a_full_disk_gives_the_mail_back(queue: QueueShell, tmp_path: Path) -> None:
    (mail,) = queue.put("one")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f".{mail}.json.part").mkdir()  # what cannot be opened for writing

    ended = queue("dequeue", "--dir", str(tmp_path / "out"), "--limit", "1", "--json")

    assert (ended.code, ended.json["unsettled"]) == (3, [str(mail)])
    assert queue.delivered(1) == ["one"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, ConsumerOutcome.ACKED),
        (75, ConsumerOutcome.RETRIED),
        (1, ConsumerOutcome.REJECTED),
        (74, ConsumerOutcome.REJECTED),
        (-9, ConsumerOutcome.REJECTED),
    ],
)
def test_an_exit_code_decides(code: int, outcome: ConsumerOutcome) -> None:
    assert outcome_of(code) is outcome


@pytest.mark.parametrize(
    ("program", "code", "outcome"),
    [
        ("import sys; sys.stdin.buffer.read()", 0, "acked"),
        ("raise SystemExit(75)", 0, "retried"),
        ("raise SystemExit(1)", 1, "rejected"),
        ("import os; os.kill(os.getpid(), 9)", 1, "rejected"),
    ],
)
def test_a_command_decides_what_becomes_of_its_mail(
    queue: QueueShell, tmp_path: Path, program: str, code: int, outcome: str
) -> None:
    """Acked it is gone, retried it is delayed, rejected it is a dead letter; one that reads nothing is fine."""
    queue.put("one")

    ended = queue("dequeue", "--exec", consumer(tmp_path, program), "--json")

    assert (ended.code, ended.json[outcome], ended.json["taken"]) == (code, 1, 1)
    where = [one.whereabouts for one in queue.listed()]
    assert where == ([Whereabouts.DELAYED] if outcome == "retried" else [])
    assert len(queue.broker.dead(queue.name)) == (outcome == "rejected")


def test_a_command_gets_the_message_and_its_envelope(queue: QueueShell, tmp_path: Path) -> None:
    """On standard input and in the environment, where none of our secrets is."""
    (mail,) = queue.put("one", recipients=("bob@example.org", "carol@example.org"))
    passed = tmp_path / "passed.json"
    program = f"""
import json, os, sys
kept = {{name: value for name, value in os.environ.items() if name.startswith(("MAIL_", "MAILMEND_"))}}
json.dump([sys.stdin.buffer.read().decode(), kept], open({str(passed)!r}, "w"))
"""
    secrets = {
        "MAILMEND_BROKER_PASSWORD": "hunter2",
        "MAILMEND_S3_SECRET_KEY": "hunter2",
        "MAILMEND_PASSWORD": "hunter2",
        "MAILMEND_BROKER": "amqp://u:hunter2@127.0.0.1",
        "MAILMEND_TO_BROKER": "amqp://u:hunter2@127.0.0.1",
        "MAILMEND_TOKENS": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_SESSION_TOKEN": "hunter2",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=hunter2",
    }

    ended = queue("dequeue", "--exec", consumer(tmp_path, program), **secrets)

    assert ended.code == 0, ended.err
    content, environment = json.loads(passed.read_text())
    assert content.encode() == CONTENT
    assert (environment["MAIL_ID"], environment["MAIL_SENDER"]) == (str(mail), "ada@example.org")
    assert environment["MAIL_RECIPIENTS"] == "bob@example.org carol@example.org"
    assert (environment["MAIL_QUEUE"], environment["MAIL_ATTEMPTS"]) == ("spool", "0")
    assert "hunter2" not in passed.read_text()
    assert not [name for name in environment if name.startswith("MAILMEND_")]


def test_recipients_that_fit_no_variable_are_in_a_file(queue: QueueShell, tmp_path: Path) -> None:
    """Linux refuses a variable of 128 KiB: 1,000 recipients of 320 characters have more."""
    recipients = tuple(f"{number:0>250}@{'long.' * 11}example.org" for number in range(1000))
    queue.put("one", recipients=recipients)
    passed = tmp_path / "passed.json"
    program = f"""
import json, os
lines = open(os.environ["MAIL_RECIPIENTS_FILE"]).read().splitlines()
mode = os.stat(os.environ["MAIL_RECIPIENTS_FILE"]).st_mode & 0o777
json.dump([os.environ["MAIL_RECIPIENTS"], lines, mode, os.environ["MAIL_RECIPIENTS_FILE"]], open({str(passed)!r}, "w"))
"""

    ended = queue("dequeue", "--exec", consumer(tmp_path, program), "--json")

    variable, lines, mode, file = json.loads(passed.read_text())
    assert (ended.code, ended.json["acked"], variable) == (0, 1, "MAIL_RECIPIENTS_FILE")
    assert (tuple(lines), mode, Path(file).exists()) == (recipients, 0o600, False)


def test_a_mail_whose_command_cannot_start_is_retried_and_the_next_one_is_taken(
    queue: QueueShell, tmp_path: Path
) -> None:
    """A state of 200 KB, as a foreign program may enqueue it, makes the environment too long for Linux."""
    queue.put("poison", state="s" * 200_000)
    queue.put("one")

    ended = queue("dequeue", "--exec", consumer(tmp_path, ""), "--json")

    assert (ended.code, ended.json["retried"], ended.json["acked"]) == (0, 1, 1)
    assert "retried: " in ended.err
    assert "Argument list too long" in ended.err


async def test_a_recipient_that_would_be_two_lines_goes_to_the_dead_letters() -> None:
    """Our own admission refuses such an address; another program may have enqueued it."""
    consume = consumer_in_command("true", QueueName("spool"))
    foreign = SimpleNamespace(mail=SimpleNamespace(recipients=("bob@example.org\ncarol@example.org",)))

    assert await consume(cast("Dequeued", foreign)) is ConsumerOutcome.REJECTED


@pytest.mark.parametrize(("options", "stdout"), [((), "noise\n"), (("--json",), "")])
def test_what_a_command_prints_stays_out_of_our_json(
    queue: QueueShell, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], stdout: str
) -> None:
    queue.put("one")

    ended = queue("dequeue", "--exec", consumer(tmp_path, "print('noise')"), *options)

    printed = capfd.readouterr()
    assert (ended.code, printed.out, "noise" in printed.err) == (0, stdout, not stdout)


def test_several_are_worked_on_at_once(queue: QueueShell, tmp_path: Path) -> None:
    """As many as the prefetch: three that wait for each other all end."""
    queue.put(*"abc")
    program = f"""
import os, pathlib, sys, time
folder = pathlib.Path({str(tmp_path)!r})
(folder / os.environ["MAIL_NAME"]).touch()
deadline = time.monotonic() + 30
while not all((folder / name).exists() for name in "abc"):
    if time.monotonic() > deadline: sys.exit(1)
    time.sleep(0.01)
"""
    assert queue("dequeue", "--exec", consumer(tmp_path, program), "--limit", "3", "--json").json["acked"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give --dir DIR, or --exec COMMAND"),
        (("--dir", "x", "--exec", "y"), "Give --dir DIR, or --exec COMMAND"),
        (("--exec", "no-such-program-anywhere"), "there is no command"),
        (("--exec", "'"), "not a command"),
        (("--exec", ""), "there is no command"),
        (("--dir", "x", "--prefetch", "0"), "0 is not in the range"),
        (("--dry-run", "--forever"), "--forever is for taking mails"),
        (("--dry-run", "--wait", "5s"), "--wait is for taking mails"),
        (("--dry-run", "--exec", "no-such-program-anywhere"), "there is no command"),
        (("--dry-run", "--dir", "x", "--exec", "y"), "Give --dir DIR, or --exec COMMAND"),
    ],
)
def test_nothing_is_taken_before_it_is_clear_what_becomes_of_it(
    queue: QueueShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    queue.put("one")

    ended = queue("dequeue", *arguments)

    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert queue.asked == []


def test_a_service_finishes_its_unacked_mails_after_a_stop_signal(queue: QueueShell, tmp_path: Path) -> None:
    """SIGTERM while a command runs: its mail is acked, nothing further is taken, exit 0."""
    queue.put("one", "two")
    program = f"import os; os.kill({os.getpid()}, 15)"

    ended = queue("dequeue", "--exec", consumer(tmp_path, program), "--forever", "--prefetch", "1", "--json")

    assert ended.code == 0, ended.err
    assert ended.json["acked"] == 1
    assert len(queue.names()) == 1


def test_a_dry_run_lists_the_first_and_takes_none(queue: QueueShell, tmp_path: Path) -> None:
    """As many as are asked for, those that wait; no broker, no store, no folder is needed for it."""
    first = queue.put("one")
    queue.pass_time(hours=1)
    queue.put("two", "three")
    queue.put_later("later", timedelta(hours=1))
    folder = tmp_path / "out"

    ended = queue("dequeue", "--dry-run", "--dir", str(folder), "--limit", "1", "--json", **NO_SIDES)

    assert (ended.code, ended.json["dry_run"], ended.json["taken"]) == (0, True, 0)
    assert (ids_in(ended.json["would_take"]), ended.json["more"]) == (list(map(str, first)), True)
    assert (folder.exists(), queue.asked, len(queue.broker.ready(queue.name))) == (False, [], 3)
    every = queue("dequeue", "--dry-run", "--json", **NO_SIDES).json
    assert [one["name"] for one in every["would_take"]] in (["one", "two", "three"], ["one", "three", "two"])
    assert not every["more"]
    assert sorted(queue.delivered(3)) == ["one", "three", "two"]


def test_a_dry_run_says_whose_order_it_shows(queue: QueueShell) -> None:
    """The listing's; of as many as a prefetch has. An empty queue is said to be empty."""
    assert "No mail waits in spool" in queue("dequeue", "--dry-run", **NO_SIDES).out

    (one, _) = queue.put("one", "two")
    output = queue("dequeue", "--dry-run", "--prefetch", "1", **NO_SIDES).out

    assert "1 mails would be handed over, and there are more" in output
    assert "the broker's own may differ" in output
    assert str(one)[:8] in output


NO_SIDES = {"MAILMEND_BROKER": "", "MAILMEND_BLOBS": ""}
"""Neither is named."""
