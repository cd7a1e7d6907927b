"""The page of the rules, `docs/lint.md`, generated from the rules themselves.

`python -m mailmend.admin.schema.lint_page` writes it; with `--check` it exits 1 when the page is not up to date.
"""

import sys
from pathlib import Path
from typing import Final

from mailmend.cql.generated import write_or_check
from mailmend.cql.schema.lint.rule import LintRule
from mailmend.cql.schema.lint.rules import CATALOG_IGNORES, RULES
from mailmend.delivery.policy.lint import POLICY_RULES, PolicyRule

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "lint.md"

_HEAD: Final = """\
# The rules of `mailmend schema lint`

Generated from the rules: `python -m mailmend.admin.schema.lint_page` writes it anew.

```
mailmend schema lint cql/schema.cql migrations/      files, and folders of files, as one history in that order
mailmend schema lint --live --keyspace mykeyspace    a live keyspace; only read
mailmend schema lint --rules                         this list
```

Levels: *error*, the server refuses it, or rows are lost or come back; *warning*, it costs space, latency or
consistency; *note*, worth knowing, right in some cases. Exit code 1 where something is found at `--fail-on` (warning)
or above, 2 where the text is not CQL or the request makes no sense.

A rule that needs what no schema says is silent until an option says it: `--repair-interval` (T18), `--projection` (T19,
T20, T21), `--marks-table` (T12), `--partition-rows` (T15). What follows from what in a keyspace of mail is known. A
live server tells its version, its hint window and its variant of Paxos itself, where the role may read `system_views`.

Letting a finding stand takes a reason, in the settings file or in a comment right before the statement:

```toml
[schema.lint]
ignore = [{ rule = "T5", table = "mytable", reason = "rows change for an hour after they are written" }]
```

```sql
-- lint: ignore T5, T13: rows change for an hour after they are written
CREATE TABLE mytable ( ...
```
"""


_POLICY_HEAD: Final = """\
# The rules of `mailmend policy lint`

```
mailmend policy lint policies.yaml    a policy file of `mailmend delivery serve`
```

What is found is legal: the server takes it, but it is surely a mistake. Only what is certain is said; of two
expressions nothing is known but that they are the same. Exit code 1 where something is found, 2 where the server would
not take the file.
"""


def page_text() -> str:
    schema = (_HEAD, "## The rules\n", *(_section(rule) for rule in RULES), _ignored())
    return "\n".join((*schema, _POLICY_HEAD, *(_policy_section(rule) for rule in POLICY_RULES)))


def _policy_section(rule: PolicyRule) -> str:
    return f"### {rule.id}: {rule.title}\n\n{rule.reason}\n\n*Fix:* {rule.fix}\n"


def _section(rule: LintRule) -> str:
    return (
        f"### {rule.id}: {rule.title} ({rule.severity.word})\n\n"
        f"{rule.reason}\n\n*Fix:* {rule.fix}\n\n*Reference:* <{rule.reference}>\n"
    )


def _ignored() -> str:
    rows = (f"| {ignore.rule} | `{ignore.table}` | {ignore.reason} |" for ignore in CATALOG_IGNORES)
    return "\n".join(
        (
            "## What our own tables let stand\n",
            "The tables of `cql/schema.cql` and of the ledger lint clean but for these; mailmend knows the reasons.\n",
            "| rule | table | reason |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when the page is out of date; else write it."""
    otherwise = "is not what the rules say: python -m mailmend.admin.schema.lint_page writes it anew"
    return write_or_check(arguments, PAGE, page_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
