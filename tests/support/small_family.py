"""A truth with one projection of each kind, smaller than James's: names differ, and columns are left out."""

from typing import Final

from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Counts, Family, Filter, Union
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Table, columns

LETTERS: Final = Table(
    "letters",
    columns("id int", "box int, num int", regular="labels set<text>, size int, seen boolean, title text, note text"),
)
BY_BOX: Final = Table(
    "byBox", columns("inbox int", "num int", regular="letter int, words set<text>, title text, size int")
)
UNSEEN_OF_BOX: Final = Table("unseenOfBox", columns("box int", "num int"))
LABELS_OF_BOX: Final = Table("labelsOfBox", columns("box int", regular="labels set<text>"))
COUNTS_OF_BOX: Final = Table("countsOfBox", columns("box int", regular="letters counter, read counter"))
TEXTS: Final = Table("texts", columns("id int", regular="text text"))

_BY_BOX: Final = (("box", "box"),)

SMALL: Final = Family(
    mirror=Mirror(
        truth=LETTERS,
        table=BY_BOX,
        key=(("inbox", "box"), ("num", "num")),
        compared=columns("", regular="title text"),
        renamed=(("letter", "id"), ("words", "labels")),
        required=("size",),
    ),
    filters=(Filter(LETTERS, UNSEEN_OF_BOX, (*_BY_BOX, ("num", "num")), Condition("seen", value=False)),),
    unions=(Union(LETTERS, LABELS_OF_BOX, _BY_BOX, "labels"),),
    counts=(Counts(LETTERS, COUNTS_OF_BOX, _BY_BOX, (("letters", None), ("read", Condition("seen", value=True)))),),
    content=Content(LETTERS, TEXTS, (("id", "id"),)),
)
