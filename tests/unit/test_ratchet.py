"""The ratchet counts folded code, refuses one more of each kind, and lowers its table without raising any count."""

from pathlib import Path

import pytest

from tests.ratchet import KINDS, above, compare, counts_of, lowered, modules

ONE_MORE = {
    "conditionals": "size = 1 if large else 0\n",
    "packed": "first, second = 1, 2\n",
    "nested": "pairs = [(row, cell) for row in rows for cell in row]\n",
    "one": "for one in files:\n    print(one)\n",
    "closures": "def outer():\n    def inner():\n        return 1\n\n    return inner\n",
    "long": "# " + "x" * 99 + "\n",
}
OPEN = """
def area(rows):
    def cells(row):
        return row.cells

    first = rows[0]
    first, *others = rows
    named = {row.name: row for row in sorted(rows, key=lambda row: row.name)}
    for row in rows:
        print(cells(row))
    return first, others, named
"""
NONE = dict.fromkeys(KINDS, 0)


def package_with(folder: Path, source: str) -> Path:
    package = folder / "package"
    package.mkdir()
    (package / "module.py").write_text(source)
    return package


def test_open_code_holds_nothing_that_is_counted(tmp_path: Path) -> None:
    assert counts_of(package_with(tmp_path, OPEN)) == NONE


@pytest.mark.parametrize("kind", KINDS)
def test_one_more_of_each_kind_is_refused(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts = counts_of(package_with(tmp_path, OPEN + ONE_MORE[kind]))

    assert counts == {**NONE, kind: 1}
    assert above(NONE, counts) == [kind]
    assert not compare({"package": NONE}, {"package": counts})
    assert capsys.readouterr().out == (
        f"package: {KINDS[kind]}: 0 allowed, 1 found\n"
        f"  the command that lists them: python -m tests.ratchet --list {kind} package\n"
    )


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("packed", "first, second = second, first\n"),
        ("nested", "names = [{cell for cell in row} for row in rows]\n"),
        ("one", "found = {key: one for key, one in rows.items()}\n"),
        ("one", "async def read():\n    async for one in rows:\n        print(one)\n"),
        ("closures", "def outer(key):\n    return lambda row: row[key]\n"),
        ("closures", "def outer(key):\n    return (lambda row: row) if key else (lambda row: key)\n"),
        ("closures", "outer = lambda key: lambda row: row[key]\n"),
    ],
)
def test_other_shapes_of_a_kind_are_counted(tmp_path: Path, kind: str, source: str) -> None:
    assert counts_of(package_with(tmp_path, source))[kind] == 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    package = package_with(tmp_path, ONE_MORE["packed"])
    other = tmp_path / "other"
    other.mkdir()
    (other / "linked_folder").symlink_to(package)
    (other / "linked_module.py").symlink_to(package / "module.py")

    assert list(modules(other)) == []


def test_fewer_than_allowed_pass_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare({"package": {**NONE, "packed": 2}}, {"package": {**NONE, "packed": 1}})
    assert "python -m tests.ratchet --write" in capsys.readouterr().out


def test_the_table_is_lowered_and_never_raised() -> None:
    def text(packed: int) -> str:
        row = ", ".join(f"{kind} = {count}" for kind, count in {**NONE, "packed": packed, "one": 3}.items())
        table = f"[tool.ratchet]\n# The counts only fall.\npackage = {{ {row} }}\n"
        return f'[tool.other]\nx = 1\n\n{table}\n[tool.last]\ny = "z"\n'

    assert lowered(text(9), {"package": {**NONE, "packed": 4, "one": 5}}) == text(4)
