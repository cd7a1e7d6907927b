"""--log-level and --log-format: one line an event, the run on each, no secret, and stdout as without them."""

import io
import json
import logging
import subprocess
import sys
from contextlib import redirect_stderr
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.serializers import CloudPickleSerializer

from mailmend.admin.frame.endings import ending_of
from mailmend.admin.frame.logs import LEVELS, command_began, command_log, log_finding, logged_progress
from mailmend.model.errors import LeaseHeld
from mailmend.model.operations import Put
from mailmend.model.ports import Silent
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.log_fields import (
    json_line,
    log_fields,
    own_log_fields,
    put_log_field,
    text_line,
    with_command_log,
    with_log_fields,
)
from tests.support.clock import VirtualClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace
from tests.support.writing import Faults

QUICK = ("--engine", "local", "--delay", "0")
JSON_LOG = ("--log-level", "debug", "--log-format", "json")
SECRET = "s3cr3t-Pässw0rd"


def events(text: str) -> list[dict[str, Any]]:
    """Progress stays as it is; each of the other lines is one event."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class TestARepair:
    """What is told of a command from its beginning to its end."""

    def test_each_event_is_a_line_with_the_run(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        mail.lose_projection(mail.truths[0])
        cluster.clock.advance(1)

        ended = mailmend("repair", "messages", *QUICK, "--json", *JSON_LOG)

        logged = events(ended.err)
        names = [one["event"] for one in logged]
        assert ended.json["fixed"] == {"PROJECT": 1}
        assert (names[0], names[-1]) == ("command began", "command ended")
        assert {"lease taken", "phase began", "phase ended", "a finding", "lease released"} <= set(names)
        within = logged[names.index("run began") : names.index("run ended") + 1]
        assert {one.get("run") for one in within} == {ended.json["run"]}
        assert all("run" not in one for one in logged if one not in within)
        assert len({one["command_id"] for one in logged}) == 1
        assert (logged[-1]["command"], logged[-1]["exit"]) == ("mailmend repair messages", 0)
        assert logged[-1]["seconds"] >= 0
        for one in logged:
            assert datetime.fromisoformat(one["time"]).utcoffset() == timedelta(0)
            assert (one["logger"].startswith("mailmend."), one["level"] in LEVELS) == (True, True)

    def test_phases_tell_their_rows(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        logged = events(mailmend("check", *QUICK, "--log-level", "info", "--log-format", "json").err)

        (read,) = [one for one in logged if one["event"] == "phase ended" and one["phase"] == "read imapUidTable"]
        assert read["steps"] == len(mail.truths)

    def test_a_long_phase_tells_now_and_then_how_far_it_is(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "mailmend")
        clock = VirtualClock()
        with logged_progress(Silent(), clock) as progress:
            progress.stage("look again", 1000)
            for _ in range(24):
                clock.advance(0.5)
                progress.advance(10)
            progress.found(Finding(Suspect("firstUnseen", (), Verdict.PROJECT), Verdict.PROJECT, Verdict.FIXED))

        logged = [json.loads(json_line(record)) for record in caplog.records]
        assert [one["event"] for one in logged] == ["phase began", "phase goes on", "phase goes on", "phase ended"]
        assert [one.get("steps") for one in logged] == [None, 100, 200, 240]
        assert logged[-1]["fixed"] == {"firstUnseen": {"PROJECT": 1}}

    def test_what_fails_is_reported_by_its_ids(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin
    ) -> None:
        mail.lose_projection(mail.truths[0])
        faults = Faults()
        cluster.keyspace("mail").surround = faults
        faults.fail(lambda one: isinstance(one, Put), LeaseHeld("refused by the server"), times=100)
        cluster.clock.advance(1)

        ended = mailmend("repair", "messages", *QUICK, "--log-format", "json")

        (failed,) = [one for one in events(ended.err) if one["logger"] == "mailmend.findings"]
        truth = mail.truths[0]
        assert failed["level"] == "warning"
        assert failed["truths"] == [str(truth["messageid"])]
        assert failed["key"] == [str(truth["mailboxid"]), str(truth["uid"])]
        assert "refused by the server" in failed["error"]

    def test_a_command_that_is_no_run_has_an_id_on_each_line_and_the_next_another(self, mailmend: CommandLine) -> None:
        ids = [{one["command_id"] for one in events(mailmend("version", *JSON_LOG).err)} for _ in range(2)]

        assert [len(one) for one in ids] == [1, 1]
        assert ids[0] != ids[1]

    def test_the_error_that_ended_it_is_named(self, mailmend: CommandLine) -> None:
        ended = mailmend("undo", "4b0f6e1c-0000-1000-8000-000000000000", *JSON_LOG)

        assert (events(ended.err)[-1]["error"], events(ended.err)[-1]["exit"]) == ("UnknownRun", 2)

    def test_a_crash_names_its_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        def command() -> int:
            command_began("x", "info", "json")
            return 1 // 0

        assert ending_of(command) == 3
        said = capsys.readouterr().err
        assert Path(events(said)[-1]["crash_log"]).read_text().endswith("by zero\n")
        assert events(said)[-1]["crash_log"] in said.splitlines()[1]

    def test_a_jobs_command_is_logged_once_and_names_its_job(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        mail.lose_projection(mail.truths[0])
        cluster.clock.advance(1)
        file = tmp_path / "config.toml"
        file.write_text(
            '[jobs.nightly]\ncommand = "repair messages --engine local --delay 0"\nschedule = "0 1 * * *"\n'
        )

        ended = mailmend("jobs", "run", "nightly", "--config", str(file), "--log-level", "info", "--log-format", "json")

        logged = events(ended.err)
        commands = [
            (one["event"], one["command"], one.get("job")) for one in logged if "command" in one and "exit" in one
        ]
        assert commands == [
            ("command ended", "mailmend repair messages", "nightly"),
            ("command ended", "mailmend jobs run", "nightly"),
        ]
        (began,) = [one for one in logged if one["event"] == "run began"]
        assert (began["job"], [one["event"] for one in logged].count("run ended")) == ("nightly", 1)

    def test_without_options_nobody_sees_noise(self, mailmend: CommandLine) -> None:
        assert "mailmend.commands" not in mailmend("check", *QUICK).err


class TestOptions:
    """As other options: typed, in the environment, in the settings file; on every command."""

    @pytest.mark.parametrize("level", [*LEVELS, "INFO"])
    def test_stdout_is_untouched_by_any_level(self, mailmend: CommandLine, level: str) -> None:
        plain = mailmend("runs", "list", "--json")
        for form in ("text", "json"):
            assert mailmend("runs", "list", "--json", "--log-level", level, "--log-format", form).out == plain.out

    def test_the_environment_and_the_settings_file_count(self, mailmend: CommandLine, tmp_path: Path) -> None:
        file = tmp_path / "config.toml"
        file.write_text('log-level = "info"\nlog-format = "json"\n[version]\nlog-level = "error"\n')

        assert events(mailmend("check", *QUICK, "--config", str(file)).err)
        assert not events(mailmend("--config", str(file), "version").err)
        assert events(mailmend("version", MAILMEND_LOG_LEVEL="info", MAILMEND_LOG_FORMAT="json").err)

    def test_a_wrong_level_is_wrong_use(self, mailmend: CommandLine) -> None:
        ended = mailmend("version", "--log-level", "loud")

        assert (ended.code, "debug" in ended.err, ended.out) == (2, True, "")

    def test_a_closed_stderr_changes_nothing(self) -> None:
        with io.StringIO() as closed:
            pass

        def command() -> int:
            with redirect_stderr(closed):
                command_began("x", "debug", "text")
                return 1

        assert ending_of(command) == 1


class TestSecrets:
    """None of them, at the most talkative level, however it came in."""

    @pytest.mark.parametrize(
        ("arguments", "environment"),
        [
            (("check", *QUICK, "--username", "james"), {"MAILMEND_PASSWORD": SECRET}),
            (("check", *QUICK, "--username", "james", "--password-file", "FILE"), {}),
            (("check", *QUICK, "--username", "james", "--password-command", "cat FILE"), {}),
            (("--config", "SETTINGS", "check", *QUICK), {}),
            (("queue", "list"), {"MAILMEND_BROKER": f"amqp://james:{SECRET}@127.0.0.1:1/"}),
            (("queue", "health"), {"MAILMEND_BROKER": f"amqp://james:{SECRET}@127.0.0.1:1/"}),
            (
                ("doctor",),
                {
                    "MAILMEND_BLOBS": "s3://bucket?endpoint=http://127.0.0.1:1",
                    "MAILMEND_S3_ACCESS_KEY": "key",
                    "MAILMEND_S3_SECRET_KEY": SECRET,
                },
            ),
        ],
        ids=lambda one: one[-1] if isinstance(one, tuple) else "",
    )
    @pytest.mark.parametrize("form", ["text", "json"])
    def test_no_line_holds_it(
        self, arguments: tuple[str, ...], environment: dict[str, str], form: str, mailmend: CommandLine, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_text(SECRET + "\n")
        (tmp_path / "config.toml").write_text(f'username = "james"\npassword = "{SECRET}"\n')
        files = {"FILE": tmp_path / "secret", "SETTINGS": tmp_path / "config.toml"}
        typed = [_filled(one, files) for one in arguments]

        ended = mailmend(*typed, "--log-level", "debug", "--log-format", form, **environment)

        assert "command began" in ended.err, ended.err
        for spelled in (SECRET, json.dumps(SECRET)[1:-1]):
            assert spelled not in ended.err + ended.out

    @given(st.text(alphabet=st.characters(exclude_characters="@/", exclude_categories=("Cs", "Z", "C")), min_size=6))
    def test_a_librarys_url_loses_its_user(self, password: str) -> None:
        record = logging.makeLogRecord(
            {"name": "mailmend.queue", "msg": "x", "error": f"amqp://james:{password}@host/v"}
        )

        for line in (text_line(record), json_line(record)):
            assert "://***@host/v" in line

    def test_a_text_in_a_key_is_not_reported(self) -> None:
        """Ids are; the key of a table of one's own may hold an address."""
        with patch("mailmend.admin.frame.logs._FINDINGS") as log:
            log_finding(
                Finding(Suspect("by_user", ("bob@example.org", 3), Verdict.AMEND), Verdict.AMEND, error="refused")
            )
        assert log.log.call_args.kwargs["extra"]["key"] == ["(text)", "3"]


def _filled(text: str, files: dict[str, Path]) -> str:
    for name, file in files.items():
        text = text.replace(name, str(file))
    return text


class TestLines:
    """One line each, whatever is in it."""

    @given(
        st.text(max_size=20),
        st.dictionaries(st.sampled_from(["queue", "mail", "error"]), st.text() | st.integers() | st.lists(st.text())),
    )
    def test_any_text_is_one_line(self, message: str, fields: dict[str, Any]) -> None:
        record = logging.makeLogRecord(
            {"name": "mailmend.x", "levelname": "INFO", "msg": "%s", "args": (message,), **fields}
        )

        parsed = json.loads(json_line(record))

        assert len(json_line(record).splitlines()) == 1
        assert parsed["event"] == message
        if "://" not in str(fields):
            assert {name: parsed[name] for name in fields} == fields
        assert len(text_line(logging.makeLogRecord({**vars(record), "msg": "event", "args": ()})).splitlines()) == 1

    def test_a_traceback_is_in_the_line(self) -> None:
        try:
            1 // 0  # noqa: B018
        except ZeroDivisionError:
            record = logging.makeLogRecord({"name": "mailmend.x", "msg": "flaw", "exc_info": sys.exc_info()})

        assert "ZeroDivisionError" in json.loads(json_line(record))["exception"]
        assert len(text_line(record).splitlines()) == 1


class TestFields:
    """The run is known to every thread of its command, and to no other."""

    def test_a_thread_that_began_before_the_run_knows_it(self) -> None:
        seen = list[str]()
        with own_log_fields():
            reported = with_log_fields(lambda: seen.append(log_fields().get("run", "")))
            put_log_field("run", "1")
            with own_log_fields():
                put_log_field("run", "2")
                reported()
            assert log_fields() == {"run": "1"}
        assert (seen, log_fields()) == (["1"], {})

    def test_a_worker_process_elsewhere_writes_the_commands_lines(self) -> None:
        serializer: Any = CloudPickleSerializer  # without types in Spark 4
        pickling = serializer()

        def work() -> None:
            logging.getLogger("mailmend.cluster").info("connected to the cluster", extra={"port": 9042})

        with command_log() as log, own_log_fields():
            log.began("repair", "info", "json")
            put_log_field("run", "1")
            sent = pickling.dumps(with_command_log(work))
        worker = "import pickle, sys; pickle.load(sys.stdin.buffer)()"
        ended = subprocess.run([sys.executable, "-c", worker], input=sent, capture_output=True, check=True)

        (reported,) = events(ended.stderr.decode())
        assert (reported["event"], reported["run"], reported["port"]) == ("connected to the cluster", "1", 9042)

    def test_a_program_of_somebody_elses_keeps_none(self) -> None:
        """It may have several runs at once, and no end at which the field would go."""
        put_log_field("run", "1")

        assert log_fields() == {}
