"""Runbooks: every page has the same form, and its commands are commands that exist."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from mailmend.admin.frame.runbooks import SECTIONS, RunbookPage, page_named, pages
from mailmend.admin.main import mailmend
from mailmend.model.errors import ClocksDiffer, MailmendError, WrongUse

PAGE = RunbookPage(
    "x",
    """# A question

## When
Text with $ signs.

## Check
```console
$ mailmend check \\
    --keyspace $KEYSPACE  # exit 1
No drift.
```

## Do
```console
$ one
$ two $RUN
```

```toml
$ three
```

```
$ mailmend check \\
    --wrong
output
```
""",
)


def test_a_page_knows_its_title_sections_commands_and_placeholders() -> None:
    """Only lines with a prompt, in console blocks, are commands; output and prose are not."""
    assert PAGE.title == "A question"
    assert PAGE.sections == ("When", "Check", "Do")
    assert PAGE.commands() == ("mailmend check --keyspace $KEYSPACE # exit 1", "one", "two $RUN")
    assert PAGE.commands("Do") == ("one", "two $RUN")
    assert PAGE.commands("Undo") == ()
    assert [step.output for step in PAGE.steps()] == [("No drift.",), (), ()]
    assert PAGE.placeholders == {"KEYSPACE", "RUN"}
    assert PAGE.untried == ("mailmend check --wrong",)


@pytest.mark.parametrize(("seen", "name"), [("unread badge is wrong", "flags-differ")])
def test_a_title_says_what_somebody_sees(seen: str, name: str) -> None:
    """`runbook list` has nothing else to go by."""
    assert [page.name for page in pages() if seen in page.title] == [name]


def test_the_first_pages_are_there() -> None:
    assert {page.name for page in pages()} >= {
        "content-is-lost",
        "flags-differ",
        "message-in-jmap-not-in-imap",
        "projection-lags",
        "repair-was-interrupted",
    }


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_page_has_the_form(page: RunbookPage) -> None:
    """When, check, do, verify, undo; each placeholder explained at the top."""
    top = page.text.split("## When")[0]

    assert page.sections == SECTIONS
    assert page.commands("Check")
    assert page.commands("Do")
    assert page.commands("Verify")
    for name in page.placeholders:
        assert f"`${name}`" in top


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_page_says_what_somebody_asks_at_night(page: RunbookPage) -> None:
    """Who is hurt, how long it takes, whom to call, and what it looks like."""
    when = " ".join(page.section("When").split())

    for wanted in ("- Impact: ", "- Takes: ", "- Call: "):
        assert wanted in when
    assert any(step.output for step in page.steps("Check")), "no command of Check shows what it prints"


def test_every_error_names_a_page_or_says_all_itself() -> None:
    """A new kind of error has to choose; what it names is there."""
    kinds, names = set(_kinds_of(MailmendError)), {page.name for page in pages()}

    assert {kind.page for kind in kinds if kind.page} <= names
    assert {kind.__name__ for kind in kinds if not kind.page} == ERRORS_WITHOUT_PAGE
    assert ClocksDiffer("x", mend="y").message == "x\ny\nMore: mailmend runbook show clocks-differ"
    assert ClocksDiffer("x", mend="mailmend runbook show z").message == "x\nmailmend runbook show z"
    assert str(ClocksDiffer("x", mend="y")) == "x\ny"


ERRORS_WITHOUT_PAGE = {
    # Wrong use: the message says what to write instead.
    *("WrongUse", "MissingExtra", "BadSettings", "ReplicationNeeded", "LikeAnotherKeyspace", "TablesOfOthers"),
    *("BadIdentifier", "CqlSyntaxError", "SchemaRefused", "UnsafeRequest", "UnknownKeyspace", "BadMail"),
    *("UnknownMessage", "UnknownRow", "Delayed", "ServerNameTaken", "NotThere"),
    # This machine: the message names the file, or what to install.
    *("JavaMissing", "LocalServerError", "StateUnwritable", "ResultUnwritten"),
    # The same again.
    "Contended",
    # A fault of ours: the message says what is missing, and to keep the file.
    "OctetsLost",
    # The ledger holds what nobody writes: the message says which record, and how to go on without it.
    "DamagedRecord",
}


def _kinds_of(kind: type[MailmendError]) -> Iterator[type[MailmendError]]:
    for below in kind.__subclasses__():
        if below.__module__ == MailmendError.__module__:
            yield below
        yield from _kinds_of(below)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_command_of_a_page_is_one_that_exists(page: RunbookPage) -> None:
    """Parsed by the real command line, which then does nothing: a renamed option breaks this test at once."""
    for command in page.commands():
        assert command.startswith("mailmend ")
        _parse_line(command)
    for command in page.untried:
        _parse_line(command)


def test_a_command_that_does_not_exist_is_found_in_a_block_of_no_language() -> None:
    with pytest.raises(click.NoSuchOption, match="--wrong"):
        _parse_line(*PAGE.untried)


def test_nodes_that_disagree_are_brought_together_before_any_statement_changes_the_schema() -> None:
    """Restarts and one node's reset take nothing away; a statement while nodes disagree may make a third version."""
    steps = ("restart it", "`nodetool resetlocalschema` on that node alone", "a statement that changes the schema")
    text = " ".join(page_named("schema-disagreement").section("Do").split())

    places = [text.index(one) for one in (*steps, "$ mailmend schema apply")]

    assert places == sorted(places)
    assert not re.search(r"\b(CREATE|ALTER|DROP) (TABLE|KEYSPACE|TYPE)|schema apply|create an empty", text[: places[2]])


def test_an_unknown_page_is_refused() -> None:
    assert page_named("flags-differ.md").name == "flags-differ"
    with pytest.raises(WrongUse, match="there is no runbook"):
        page_named("no")


def _parse_line(line: str) -> None:
    """A line of another program's is that program's business."""
    if line.startswith("mailmend "):
        _parse(mailmend, shlex.split(line, comments=True)[1:])


def _parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    words = [
        word.replace("$RUN", "6e0ab5e0-8d1c-11f0-8000-000000000001").replace("$KEYSPACE", "mail") for word in words
    ]
    words = [word.replace("$MAILBOX", "6e0ab5e0-8d1c-11f0-8000-000000000001") for word in words]
    words = [word.replace("$MESSAGE", "6e0ab5e0-8d1c-11f0-8000-000000000001") for word in words]
    for order in ("$SUSPENSION", "$CONDITION"):
        words = [word.replace(order, "6e0ab5e0-8d1c-11f0-8000-000000000001") for word in words]
    words = [word.replace("$MAIL", "6e0ab5e0-8d1c-11f0-8000-000000000001") for word in words]
    words = [word.replace("$QUEUE", "spool").replace("$PULSAR_ADMIN", "http://pulsar:8080") for word in words]
    words = [word.replace("$PULSAR", "pulsar://pulsar").replace("$RABBITMQ", "amqp://rabbit") for word in words]
    if not isinstance(command, click.Group):
        command.make_context(command.name, words, parent=parent)
        return
    with click.Context(command, parent=parent, info_name=command.name, **command.context_settings) as context:
        _, found, rest = command.resolve_command(context, words)
        assert found is not None
        _parse(found, rest, context)
