"""The ratchet on hard words: each group of files may hold as many as the table says, and the table only falls.

`python -m tests.plain_words` reads the sentences that people read: docstrings and string literals with a blank, pages,
runbooks, ADRs, and the unreleased part of the changelog. It compares the groups with `[tool.plain-words]` in
`pyproject.toml` and exits 1 where a group holds more than its row allows. `--list GROUP` shows the places, `--write`
lowers the rows to what is there. The rule and its reasons: docs/contributing/style.md.

Code, fenced or in backticks, is not read; generated pages are not read either, because their sentences are
in the packages.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.ratchet import ROOT, modules

# A word of a phrase may be on the next line. "None" of Python is another word than "none", `*` stands for any text, and
# "one of these tables" names its noun.
PRONOUN: Final = r"(?=[.,;:)]|$|\s+(?:is|are|was|were|has|have|and|or|that|who|which)\b)"
WORDS: Final = {
    "likewise": "", "whoever": "", "nobody": "", "somebody": "", "everybody": "", "theirs": "", "such a one": "",
    "so many": "", "so much": "", "as many as": "", "as much as": "",
    "besides": "", "beside": "", "in its place": "", "in their place": "", "in the place of": "",
    "those of": "", "that of": "", "of these": PRONOUN, "of those": PRONOUN,
    "says nothing": "", "say nothing": "", "by itself": "", "by themselves": "", "stands": r"(?!\s+for\b)",
}  # fmt: skip
HARD: Final = re.compile(
    "|".join(
        [rf"\b(?i:{word})\b{after}".replace(" ", r"\s+") for word, after in WORDS.items()] + [r"\b(?:is|are)\s+none\b"]
    )
)
CODE: Final = re.compile(r"^( *)```.*?^\1```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
PAGES: Final = {
    "docs": ("docs/*.md", "docs/contributing/*.md", "docs/tutorials/*.md", "docs/how-to/*.md", "docs/concepts/*.md"),
    "adr": ("docs/adr/*.md",),
    "runbooks": ("runbooks/*.md",),
    "front": ("README.md", "CONTRIBUTING.md", "SECURITY.md"),
    "changelog": ("CHANGELOG.md",),
}
GENERATED: Final = ("docs/cli.md", "docs/lint.md", "docs/metrics.md", "docs/schema.md")


class Text(NamedTuple):
    """Sentences as a reader meets them, and the line at which they begin, from 1."""

    line: int
    words: str


class Place(NamedTuple):
    """Where a file holds a hard word, with the words around it."""

    line: int
    word: str
    around: str


def literal(node: ast.AST) -> str | None:
    """The text of a string literal; `{}` is there for each value of an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def without_code(text: str) -> str:
    """The text without code in backticks, its lines where they were."""
    return CODE.sub(lambda code: "\n" * code[0].count("\n"), text)


def texts_of_module(source: str) -> Iterator[Text]:
    """Docstrings and string literals with a blank; a literal without one is a name."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        words = literal(node)
        if words is None:
            waiting.extend(ast.iter_child_nodes(node))
            continue
        if " " in words:
            yield Text(getattr(node, "lineno", 1), without_code(words))
        if isinstance(node, ast.JoinedStr):
            waiting.extend(part for part in node.values if isinstance(part, ast.FormattedValue))


def texts_of_page(page: str, text: str) -> Iterator[Text]:
    """A page without its code; of the changelog, the unreleased part."""
    if page == "CHANGELOG.md":
        text = re.split(r"^## (?!Unreleased)", text, maxsplit=1, flags=re.MULTILINE)[0]
    yield Text(1, without_code(text))


def places_in(text: Text, exceptions: Sequence[str]) -> Iterator[Place]:
    """Each hard word of a text, outside the words of the exceptions."""
    words = text.words
    for allowed in exceptions:
        words = words.replace(allowed, "-" * len(allowed))
    for found in HARD.finditer(words):
        around = " ".join(words[max(0, found.start() - 60) : found.end() + 60].split())
        yield Place(text.line + words.count("\n", 0, found.start()), " ".join(found[0].split()), around)


def files_of(group: str) -> Iterator[Path]:
    if group not in PAGES:
        yield from modules(ROOT / group)
        return
    for pattern in PAGES[group]:
        for page in sorted(ROOT.glob(pattern)):
            if str(page.relative_to(ROOT)) not in GENERATED:
                yield page


def texts_of_file(file: Path) -> Iterator[Text]:
    if file.suffix == ".py":
        return texts_of_module(file.read_text())
    return texts_of_page(file.name, file.read_text())


def places_of(group: str, exceptions: Sequence[str]) -> Iterator[tuple[Path, Place]]:
    """The hard words of a group of files, file by file, line by line."""
    for file in files_of(group):
        places = [place for text in texts_of_file(file) for place in places_in(text, exceptions)]
        for place in sorted(places):
            yield file.relative_to(ROOT), place


def lowered(text: str, found: Mapping[str, int]) -> str:
    """The text of pyproject.toml with each row of the table lowered to what is there; no count rises."""
    table = tomllib.loads(text)["tool"]["plain-words"]
    head, mark, tail = text.partition("[tool.plain-words]\n")
    for group, count in found.items():
        row = f"{group} = {min(count, table[group])}"
        tail = re.sub(rf"^{group} = \d+$", row, tail, count=1, flags=re.MULTILINE)
    return head + mark + tail


def compare(table: Mapping[str, int], found: Mapping[str, int]) -> bool:
    """Report each count that rose, hint where the table can fall, and say whether all counts are allowed."""
    for group, count in found.items():
        if count > table[group]:
            print(f"{group}: hard words: {table[group]} allowed, {count} found")
            print(f"  the command that lists them: python -m tests.plain_words --list {group}")
    if any(count < table[group] for group, count in found.items()):
        print("Some counts fell. The command `python -m tests.plain_words --write` lowers the table.")
    return all(count <= table[group] for group, count in found.items())


def settings() -> tuple[dict[str, int], list[str]]:
    """The table of counts by group, and the words of the exceptions."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["plain-words"]
    exceptions = [exception["words"] for exception in table.pop("exceptions")]
    return table, exceptions


def main() -> int:
    """Compare, lower or list, as the arguments say; 1 where a group holds more than the table allows."""
    table, exceptions = settings()
    parser = argparse.ArgumentParser(prog="python -m tests.plain_words", description="The ratchet on hard words.")
    parser.add_argument("--write", action="store_true", help="lower the table to what is there")
    parser.add_argument("--list", metavar="GROUP", choices=sorted(table), help="show the places of a group")
    options = parser.parse_args()
    if options.list:
        for file, place in places_of(options.list, exceptions):
            print(f"{file}:{place.line}: {place.word}: {place.around}")
        return 0
    found = {group: sum(1 for _ in places_of(group, exceptions)) for group in table}
    if options.write:
        project = ROOT / "pyproject.toml"
        project.write_text(lowered(project.read_text(), found))
        table, _ = settings()
    return 0 if compare(table, found) else 1


if __name__ == "__main__":
    sys.exit(main())
