"""What every command can be told of its terminal: letters of options, quiet, verbose, progress, the pager."""

from collections import defaultdict
from pathlib import Path

import click
import pytest

from mailmend.admin.frame.command import SHORT
from mailmend.admin.frame.pager import pager_words
from mailmend.admin.main import mailmend as root
from mailmend.admin.messages.record_document import NOT_KEPT
from mailmend.admin.reference import commands_of
from tests.support.commands import QUICK, CommandLine, Ended
from tests.support.mail_states import MailKeyspace
from tests.support.narrow_terminal import TerminalText

COMMANDS = list(commands_of(root, click.Context(root, info_name="mailmend")))


class TestLetters:
    """One meaning each, in the whole tree of commands."""

    def test_a_letter_means_one_option_in_every_command(self) -> None:
        meanings = defaultdict[str, set[str]](set)
        for command in COMMANDS:
            for param in command.command.params:
                if not isinstance(param, click.Option):
                    continue
                for name in (*param.opts, *param.secondary_opts):
                    if not name.startswith("--"):
                        meanings[name].add(param.opts[0])
        assert dict(meanings) == {letter: {name} for name, letter in SHORT.items()}

    def test_an_option_with_a_letter_has_it_in_every_command(self) -> None:
        lacking = []
        for command in COMMANDS:
            for param in command.command.params:
                if isinstance(param, click.Option) and SHORT.get(param.opts[0], "") not in ("", *param.opts):
                    lacking.append((command.path, param.opts[0]))
        assert lacking == []

    def test_no_letter_is_that_of_help(self) -> None:
        assert len(set(SHORT.values())) == len(SHORT)
        assert "-h" not in SHORT.values()

    def test_letters_are_taken_as_the_long_names(self, mailmend: CommandLine, mail: MailKeyspace) -> None:
        mail.lose_projection(mail.truths[0])

        long = mailmend("check", "--engine", "local", "--delay", "0", "--json", "--keyspace", "mail")
        short = mailmend("check", "-e", "local", "--delay", "0", "-jk", "mail")

        assert (short.code, short.json["findings"]) == (1, long.json["findings"])


class TestStderr:
    """What a person sees besides the result."""

    @pytest.fixture
    def drift(self, mail: MailKeyspace) -> MailKeyspace:
        mail.lose_projection(mail.truths[0])
        return mail

    @pytest.mark.usefixtures("drift")
    def test_quiet_leaves_the_result_and_what_is_wrong(self, mailmend: CommandLine) -> None:
        plain = mailmend("check", *QUICK)
        quiet = mailmend("check", *QUICK, "--quiet")

        assert "..." in plain.err
        assert (quiet.code, quiet.out) == (plain.code, plain.out)
        assert quiet.err.splitlines() == ["More: mailmend runbook show check-found-inconsistencies"]

    def test_quiet_says_nothing_of_a_result_that_is_fine(self, mailmend: CommandLine, tmp_path: Path) -> None:
        report = tmp_path / "report.html"

        ended = mailmend("check", *QUICK, "-q", "--report", str(report), "--findings", str(tmp_path / "findings"))

        assert (ended.code, ended.err, report.is_file()) == (0, "", True)

    def test_quiet_keeps_errors(self, mailmend: CommandLine) -> None:
        ended = mailmend("runs", "show", "ffffffff", "-q")

        assert (ended.code, "mailmend: there is no run ffffffff" in ended.err) == (2, True)

    def test_no_progress_leaves_the_rest(self, mailmend: CommandLine, tmp_path: Path) -> None:
        ended = mailmend("check", *QUICK, "--no-progress", "--findings", str(tmp_path / "findings"))

        assert ended.err.splitlines() == [f"Findings: {tmp_path / 'findings'}", NOT_KEPT]

    def test_verbose_logs_each_step(self, mailmend: CommandLine) -> None:
        ended = mailmend("check", *QUICK, "-v", "--log-format", "json")

        assert '"event": "phase began"' in ended.err

    def test_a_level_that_is_typed_counts_more(self, mailmend: CommandLine) -> None:
        verbose = mailmend("version", "-v", "--log-level", "error")
        quiet = mailmend("version", "-q", "--log-level", "info", "--log-format", "json")

        assert verbose.err == ""
        assert '"event": "command began"' in quiet.err

    def test_quiet_and_verbose_exclude_each_other(self, mailmend: CommandLine) -> None:
        ended = mailmend("version", "-q", "-v")

        assert (ended.code, ended.out) == (2, "")
        assert "--verbose has no effect with --quiet" in ended.err

    def test_the_environment_and_the_settings_file_count(self, mailmend: CommandLine, tmp_path: Path) -> None:
        file = tmp_path / "config.toml"
        file.write_text("no_progress = true\n")

        assert mailmend("check", *QUICK, MAILMEND_QUIET="1").err == ""
        assert mailmend("check", *QUICK, "--config", str(file)).err == f"{NOT_KEPT}\n"


class TestPager:
    """As git has it."""

    def shown(self, mailmend: CommandLine, *words: str, **environment: str) -> tuple[str, Ended]:
        """What a terminal of ten lines gets of a list that is longer."""
        terminal = TerminalText()
        size = {"TERM": "xterm", "COLUMNS": "80", "LINES": "10"}
        ended = mailmend.into(terminal, "runbook", "list", *words, **size | environment)
        return terminal.getvalue(), ended

    def test_a_list_that_is_longer_than_the_terminal_goes_to_the_pager(
        self, mailmend: CommandLine, tmp_path: Path
    ) -> None:
        """With the options that `less` has under git, and without the variables of mailmend."""
        page = tmp_path / "page"
        pager = f"sh -c 'cat > {page}; echo $LESS $MAILMEND_PASSWORD >> {page}'"

        shown, ended = self.shown(mailmend, MAILMEND_PAGER=pager, PAGER="false", MAILMEND_PASSWORD="s3cret")

        assert (ended.code, shown) == (0, "")
        assert "Runbooks" in page.read_text()
        assert page.read_text().endswith("Next: mailmend runbook show NAME\nFRX\n")

    @pytest.mark.parametrize("pager", ["cat", "", "no-such-program", "'"])
    def test_without_a_pager_it_is_shown_at_once(self, mailmend: CommandLine, pager: str) -> None:
        shown, ended = self.shown(mailmend, PAGER=pager)

        assert (ended.code, shown.count("Next: mailmend runbook show NAME")) == (0, 1)

    def test_no_pager_shows_it_at_once(self, mailmend: CommandLine) -> None:
        shown, _ = self.shown(mailmend, "--no-pager", PAGER="false")

        assert "Next: mailmend runbook show NAME" in shown

    def test_a_pager_that_ends_early_changes_no_exit_code(self, mailmend: CommandLine) -> None:
        assert self.shown(mailmend, PAGER="false")[1].code == 0

    def test_what_fits_on_the_terminal_needs_no_pager(self, mailmend: CommandLine) -> None:
        shown, _ = self.shown(mailmend, PAGER="false", LINES="200")

        assert "Next: mailmend runbook show NAME" in shown

    def test_a_pipe_gets_no_pager(self, mailmend: CommandLine) -> None:
        """Also where a program asks for colours, as CI of a forge does."""
        ended = mailmend("runbook", "list", PAGER="false", LINES="10", FORCE_COLOR="1")

        assert "Next: mailmend runbook show NAME" in ended.out

    def test_commands_that_write_have_no_pager(self) -> None:
        writing = []
        for command in COMMANDS:
            names = {str(param.name) for param in command.command.params}
            if getattr(command.command, "paged", False) and names & {"dry_run", "yes"}:
                writing.append(command.path)
        assert writing == []

    def test_less_is_the_pager_where_none_is_named(self, tmp_path: Path) -> None:
        less = tmp_path / "less"
        less.touch(0o755)

        assert pager_words({"PATH": str(tmp_path)}) == ("less",)
        assert pager_words({"PATH": str(tmp_path), "PAGER": "more"}) == ()
