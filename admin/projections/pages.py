"""What is published of a file of projections: its JSON schema and its reference page.

`python -m mailmend.admin.projections.pages` writes `docs/projections.schema.json` and
`docs/declarations.md` from the form; with `--check` it exits 1 when one is not up to date.
"""

import json
import sys
from pathlib import Path
from typing import Final

from mailmend.cql.generated import write_or_check
from mailmend.model.file_forms import FileForm
from mailmend.model.projections.declaration_form import FILE_FORM, FORMS, declaration_schema
from mailmend.model.projections.declared_transforms import RULES

_DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
SCHEMA: Final = _DOCS / "projections.schema.json"
PAGE: Final = _DOCS / "declarations.md"

_HEAD: Final = """\
# Files of projections

Generated from the form: `python -m mailmend.admin.projections.pages` writes it anew.

A file of projections says which tables follow from which. The file is TOML; no part of it is
evaluated, and it holds no secrets. [projections.schema.json](projections.schema.json) is its JSON
schema: with `#:schema ./projections.schema.json` as the first line, editors complete and check it.

## A first file

`users` is the truth, `users_by_email` is a copy under another key:

```toml
[truth.users.mirror.users_by_email]
```

A copy of all columns with the same names needs no more than its header. Other names are said:

```toml
[truth.users.mirror.users_by_email]

[truth.users.mirror.people_by_name]
renamed = { full_name = "name", person = "user_id" }
left_out = ["note"]
```

```console
$ mailmend projections init --keyspace shop > shop.toml      a proposal from the live keyspace
$ mailmend projections verify shop.toml --keyspace shop      what does not fit, what a check reads
$ mailmend projections show shop.toml                        the tables and what follows from what
```

## Other kinds

```toml
[truth.users.mirror.users_by_team]

[truth.users.filter.active_users_by_team]
when = { state = ["active", "invited"], deleted_at = { null = true } }

[truth.users.union.tags_of_team]
column = "tags"

[truth.users.count.users_of_team]
counters = { total = {}, open = [{ state = "active" }, { state = { null = true } }] }

[truth.users.content.profiles]
```

A condition is a table: each of its tests must hold. A test is a constant (text, whole number,
boolean), a list of constants of which one must be equal, or a table of keys. In a list of tables,
all tests of at least one table must hold. Types of tested columns: boolean, tinyint, smallint, int,
bigint, text, ascii, uuid, timeuuid; `null` tests every column that is one cell.

| key of a test | it holds where |
|---|---|
| `not = "x"`, `not = ["x", "y"]` | the column is not equal to any of the constants |
| `starts = "a"`, `starts = ["a", "b"]` | the text begins with one of the texts |
| `starts_not = "-"`, `starts_not = ["-", "$"]` | the text does not begin with any of the texts |
| `null = true`, `null = false` | the column is null; the column is not null |

Null is never equal to a constant, so `not = "x"` holds for null. Null has no beginning, so `starts`
does not hold for null and `starts_not` does. Add `null = false` to leave out rows with null. A test
may have several keys, which must all hold; `null = true` has no other key next to it. Only columns
of the types text and ascii have a beginning. A beginning is not a pattern: `%`, `*` and `.` are
characters like all others, and upper and lower case differ.

```toml
[truth.grants.mirror.grants_of_people]
when = { person = { not = ["anyone", "owner"], starts_not = ["-", "$"] } }
```

A `filter` is a table of keys. A copy of some rows, with their cells, is a mirror with a condition:

```toml
[truth.orders.mirror.open_orders_by_day]
when = { state = "open" }
```

Filters and groups may stand next to a mirror, or alone.

## Contents

A `content` is a table with a row for each partition of the truth: its key is the truth's partition
key. It needs a mirror, which reports the rows of the truth that lack it (LOST_CONTENT). A row of
it that no row of the truth names is a LEAK. A repair reports both. An option asks for more:

| option | what it removes |
|---|---|
| `--leaks collect` | content that no row of the truth names |
| `--orphans quarantine` | rows of the truth without content, and the rows that follow from them |

A row of the truth goes while every cell is as it was seen. The rows of mirrors, `explode` and
filters that follow from it alone go with it; groups are counted anew by the next run. A repair of
the content alone (`repair profiles`) knows its mirrors only: leave the name out to quarantine rows.
Both options keep before-images for an undo, and leave a row that was made or written within the
last day.
The age of a row is told by the timeuuids of its key and by the write times of its cells: the latest
of them counts. A row without a timeuuid is left with the reason where a cell shows no write time:
a row of keys alone, and before Cassandra 5 a row with a collection that is not frozen. Content that
another table names too is no LEAK for that table: declare a content only where one truth names it.
`--torn` is for messages: a declaration does not say which columns every insert writes.

## Computed columns

```toml
[truth.orders.mirror.orders_by_day]
computed = { day = { day_of = "created_at" }, slice = { crc32_of = "order_id", buckets = 16 } }

[truth.orders.mirror.orders_by_mail]
computed = { mail = { lower = "email", default = "unknown" }, source = { constant = "shop" } }

[truth.grants.mirror.grants_by_person]
computed = { rights = { joined_of = "rights", default = "" } }

[truth.aliases.mirror.aliases_by_target.computed]
kind = { prefix_of = "target", prefixes = ["alias:", "group:"] }
target = { rest_of = "target", prefixes = ["alias:", "group:"] }
address = { joined_columns = ["name", "domain"], separator = "@" }
```

A column of a projection, also one of its key, may be computed from columns of the truth. The
truth's partition key has to be in the projection as it is, or in `joined_columns`: no other
computed value leads back to its truth. Null gives null; with `default` it gives that constant.
Times are in UTC.

@TRANSFORMS@
The form of an hour, day, month or year follows from the type of the column: a `timestamp` or `date`
is its beginning, a `text` the beginning of its ISO form (`2024-05-01T13`, `2024-05-01`, `2024-05`,
`2024`), a `bigint` has the milliseconds from 1970 to its beginning, an `int` its digits
(`20240501`, `202405`, `2024`). With `form = "digits"` a `text` has digits too (`20240501`,
`2024050113`). An hour has no `date` and no `int`. `crc32_of` takes texts, whole
numbers (their decimal digits) and UUIDs (36 characters in lower case). What `json_of` finds is a
text, a whole number, true or false; else it is null. A document that is not JSON is null, and one
with more than 500 arrays and objects within each other. Of equal keys the last one counts. Spark
hands each document to Python on its executors, because Spark's own functions read JSON in another
way; such a check takes longer.

`joined_of` takes a set or a list of texts, frozen or not, and gives a `text`. A set's elements are
in the order of their UTF-8 bytes, as the server has them; a list keeps its order. `separator` is
the text between two elements; without it the elements follow each other directly. Null and a
collection without elements give null, or the default. The joined text has the time of the
collection's newest element, and lives as long as the element that expires last. Where elements
expire at different times, the text is wrong from the first of them on (AMEND), until a repair.
Where some elements expire and others stay, a server shows the time to live of the expiring ones
only: a text that a repair wrote ends with the last of them, and the next repair writes it again.

`joined_columns` takes columns that are texts, and gives null where one of them is null. A joined
text leads back to its truth where it has no more separators than there are columns to part. A row
with more of them is checked with its table; a repair of that row alone (`--key`) leaves it.
`prefix_of` gives the prefix that the text begins with, or an empty text; `rest_of` gives the text
behind it. No prefix may begin with another one, so their order has no effect.

## A row for each element

```toml
[truth.videos.explode.videos_by_tag]
column = "tags"
element = "tag"

[truth.videos.explode.votes_by_user]
column = "votes"
element = "user_id"
value = "vote"

[truth.mails.explode.mails_by_recipient]
column = "recipients"
computed = { address = { lower = "recipients" } }
```

`column` is a set, a list or a map of the truth, frozen or not. The table has a row for each of its
elements, or for each key of a map; the columns that both tables have are copied as in a mirror. A
transform of that column is made of each element: with `field_of` a list of a user type gives
several columns. A part of the element is in the table's key. Elements that give the same row give
it once. A truth without elements has no row. Such a table needs no mirror next to it.

A collection has one time for all its elements: a row is left to the next run if any element of its
truth was written after the scan began (less `--margin`). Before 5.0 a server tells no time of a
collection: such a row is mended at once, and a program's newer write wins by its time. An element
with a TTL of its own that is shorter than its row's leaves a row behind, which a later check finds.
Spark takes sets and lists of texts, numbers, UUIDs, dates, timestamps, booleans and blobs; for
others use `--engine local`.

## Rows that truths share

```toml
[truth.messages.mirror.sizes_by_mailbox]
renamed = { size = "octets" }
needs = ["octets"]
```

A copy that does not hold the truth's whole key has one row for several rows of the truth. Where
these demand the same cells, they share the row. Where they demand different cells, the row is a
CLASH. A shared row lives as long as the last of its truths.

A row of the truth that lacks a column of `needs` cannot say what its row is. It demands none, and
the row that is there is left as it is: it counts neither as drift nor as left behind. If another
row of the truth has the column, that row alone decides. Where a column of `needs` is in the key of
the copy, a check with `--no-recheck` names such rows as WITHDRAW; a second look does not.

A `ProjectionWriter` does not remove a row that other rows of the truth may demand: the removal is a
lag, which `repair lags --projections FILE` settles.

## Values by group

```toml
[truth.events.mirror.events_by_team]

[truth.events.count.events_of_team]
counters = { total = {} }

[truth.events.max.last_seen]
columns = { last_seen_at = "created_at" }
```

A column of a `count` is a counter, an int or a bigint. An int or bigint is a value: it is
compared, overwritten and taken back as a cell. Null is 0. The column of a `max` has to be at least
as great as the column of the truth in each row of the group, the column of a `min` at least as
small. A value that is behind is drift, a value that is ahead is right. Types: tinyint, smallint,
int, bigint, timestamp, date.

A group's rows are read again before its value is mended. So its key has to be the partition key of
the truth, or of one of its mirrors; a counter's key is the partition key of a mirror. A group with
a row that was written after the scan began (less `--margin`) is left to the next run. A number is
left while the mirror lacks one of its rows. An undo takes back a maximum or minimum while it is
what the run wrote, also where the group has other rows by now; undo the later of two runs first.

```toml
[truth.events.count.events_of_user]
counters = { total = {} }
generators = ["last_event_of_user"]
```

A counter has no write time. It is mended where two looks at the rows of its group, `--delay` apart,
show the same rows, the same write times and the same counter. A row that is inserted between the
two looks, and has no mirror row yet, is in neither. `generators` names tables in which programs
change the row of the group before they insert or change a row of the truth there, such as the
last number that they gave: a counter is left while such a row changes. A generator has the key of
the counters.

```toml
[truth.events.count.events_of_user]
counters = { total = {} }
generators = ["last_event_of_user"]
numbered_by = { position = "last_event_of_user" }
used_with = ["users"]
```

`numbered_by` says which column of the truth has the numbers that a generator gave. A generator
whose last number is below the greatest one in its group is behind, as after a restored backup: the
program would give a number again, and write over the row that has it. A check names it with the
statement that raises it, and a repair raises it. It is never lowered, also not by an undo. A
generator without a row is behind too, if any generator has a row, or a table of `used_with`.

Without a mirror the groups are partitions of the truth, and the key of a filter has the truth's
whole key. With a mirror the key of a filter may have all columns of the mirror's key instead, and a
group may be a partition of the mirror. Groups share the first mirror's scan.

## Materialised views

```toml
[truth.users.view.users_by_phone]
```

A view is declared by its name. It is compared with its base in both directions, as a mirror is. The
server alone writes its rows, so a repair leaves them, unless it may touch the base (`repair
--projections FILE --touch-base`): then it writes the row of the base once more as it is, each cell
a microsecond later than it was and with the time to live that it has left, and the server derives
the row of the view again. No touch mends a row of the view that has no row in the base, a cell that
the base does not have any more, a row with a collection that is not frozen, and a row of keys
alone: such rows are left with the reason, and a view that is built anew does not have them.
ScyllaDB, which was never tried, has PRUNE MATERIALIZED VIEW for rows without a row in the base. A
view with another condition than IS NOT NULL on the columns of its key is refused.

## Rows of the truth

```toml
[truth.orders.mirror.orders_by_day]
required = ["state", "created_at"]
```

`required` names columns that every insert into the truth writes. A row of the truth that lacks one
is TORN: for example, an update came after the delete of the row. It is reported, and nothing
follows from it, until `--torn accept` takes such rows as whole. Filters, sets and counters follow
the mirror with which they are looked at. Another mirror of the same truth has its own `required`. A
column of the key is never null; the null of a collection is the empty one: both are refused.

```toml
[truth.notes.mirror.notes_by_owner]
required = ["title", "size"]
filled_from_content = ["size"]
only_reported = { WITHDRAW = "an owner may have left" }

[truth.notes.content.note_bodies]
renamed = { bytes = "size" }

[truth.notes.mirror.places]
fields = { address = { city = "city", street = "street" } }
```

`filled_from_content` names required columns that the content of the truth has too; `renamed` of the
content names a column of another name. `--torn fill` writes what a row of the truth lacks, on
condition that the row is as it was seen, and only where the row of the mirror names it: the rest of
a deleted row has no such row. A row is filled a day after it was made, which a UUID of version 1 in
the truth's partition key tells; an undo empties its cells again. Such a mirror has every row, and
is the first mirror of its truth.

`only_reported` names verdicts (PROJECT, AMEND, WITHDRAW) that a repair leaves, each with the reason
that findings show. They are drift all the same: a check ends with exit code 1.

`fields` names a column of a frozen user type, and the truth's column behind each of its fields. All
fields are named: the column is written whole.

```toml
[truth.tasks]
null_is = { done = false, size = 0, thread = { column = "message" } }

[truth.tasks.mirror.tasks_by_owner]

[truth.tasks.filter.open_tasks]
when = { done = false }
```

Where programs read a null as a value, `null_is` of the truth tells which: a constant, or another
column of the same row. A null and that value are then the same in the truth and in its copies, and
a condition tests what is read: `done = false` holds for null, too. The other column is of the same
type, and is in each copy; its own null is null. `null = true` tests the cell itself, a transform
takes the cell as it is, and a `max` or `min` passes over null. A fix writes the cell of the truth
as it is. The null of a key has no row: give a column of a key a default with `computed`.

## Names

A name is written as in CQL. Without double quotes its case has no effect. A name in double quotes
keeps its case and needs quotes of TOML around it: `[truth.'"Users"'.mirror.users_by_email]`.
"""

_RULES: Final = """\
## What is compared

Every column that both tables have, unless `left_out` names it. A column of the projection without a
column of the truth is read for before-images, and is neither compared nor written;
`projections verify` names such columns. Of a set that is not frozen, null and the empty set are
one. What else a null is, `null_is` tells. A null list or map is the same as an empty one, because
Cassandra keeps neither. A `uuid` may follow from a `timeuuid`; otherwise both have one type.

## What is refused

`projections verify` and every check name all places at once, with line, column and what to write
instead.

| what | why |
|---|---|
| a table or column that the keyspace does not have | the message names the most similar one |
| a key column of the projection without a column of the truth | the key of a row would be unknown |
| a projection without the truth's partition key | no row of it would lead back to its truth |
| a computed column whose type does not go with its transform | the message lists the types |
| an `explode` whose key has no part of the element | all elements of a row would have one key |
| two columns of different types | no value of one is a value of the other |
| a number, max or min whose group is no partition | its rows could not be read again |
| a table with counters that is not a `count` | a counter has no write time |
| a filter with columns outside its key | such a row is a copy, a `mirror` |
| a required column of the key, or a collection | no such column tells a whole row |
| `filled_from_content` without a content, or a UUID in the truth's key | no row tells all |
| fields of a user type that is not frozen, or not all fields | the column is written whole |
| a `null_is` of a column of a key | a row with a null in its key is not there |
| a `null_is` by a column that a copy does not hold | the copy alone has to tell what is read |
| a generator with another key than its counters | it has to have a row for each group |
| generators of a number that is no counter | a value has a write time, which tells of a change |
| a union of other sets than text, int or bigint | both engines have to gather its elements |
| a static column that is not left out | it is of a partition, not of a row |
| a materialised view as another kind than `view` | the server writes its rows |
| a materialised view with a condition of its own | rows that it lacks may be right |
| a masked column | a read may give other values |
| a table or column whose name needs double quotes | its rows are not read or written yet |
| a projection of two truths | one of them would take back what the other demands |

## What is not there yet

A table is one projection: it has no number and maximum at once.

## Files that mailmend has

`mail` and `james` are names of such files, where no file of that name is there. `mail` declares
James's messages and mailboxes (`projections show mail`); `mailmend check` looks at them by the same
rules, in older generations of James's tables too. `james` declares other tables of James.
"""


def page_text() -> str:
    sections = [_HEAD.replace("@TRANSFORMS@", _transforms()), "## The form\n"]
    sections.append(_table("the file", FILE_FORM))
    for word, form in FORMS.items():
        sections.append(_table(word, form))
    sections.append(_RULES)
    return "\n".join(sections)


def _transforms() -> str:
    lines = ["| transform | next to it | meaning |", "|---|---|---|"]
    for rule in RULES:
        needed = ""
        if rule.part:
            needed = f"`{rule.part}`"
        if rule.may_have:
            needed = f"{needed}, if wanted"
        lines.append(f"| `{rule.word}` | {needed} | {rule.meaning} |")
    return "\n".join(lines) + "\n"


def _table(word: str, form: FileForm) -> str:
    lines = [f"### {word}", ""]
    if form.meaning:
        lines += [form.meaning, ""]
    lines += ["| part | meaning |", "|---|---|"]
    for part in form.parts:
        lines.append(f"| `{part.name}` | {part.meaning} |")
    return "\n".join(lines) + "\n"


def schema_text() -> str:
    return json.dumps(declaration_schema(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when a file is out of date; else write both."""
    otherwise = "is not what the form says: python -m mailmend.admin.projections.pages writes it"
    of_schema = write_or_check(arguments, SCHEMA, schema_text(), otherwise)
    of_page = write_or_check(arguments, PAGE, page_text(), otherwise)
    return max(of_schema, of_page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
