"""A truth without a mirror is its own: nothing is compared, and its key leads to it."""

from mailmend.model.projections.truth_itself import TruthItself
from mailmend.model.table import Table, columns, computed_column
from mailmend.model.transforms import LowerCase

USERS = Table("users", columns("user_id uuid", "day date", "name text"))
COMPUTING = USERS.with_columns((*USERS.columns, computed_column(LowerCase(source="name", type="text"))))


def test_a_truth_is_its_own_mirror_as_the_server_has_it() -> None:
    itself = TruthItself.of(COMPUTING)

    assert (itself.truth, itself.table) == (COMPUTING, USERS)
    assert itself.key == (("user_id", "user_id"), ("day", "day"))
    assert itself.compared == ()
    assert not itself.is_copy
