"""Shares of rows that differ: comparable over tables of any size."""

from mailmend.repair.decisions.shares import shares_of_rows


def test_the_share_is_of_rows_that_are_there_or_should_be() -> None:
    """Of 98 rows read and 2 missing ones 5 differ; content that only takes room is no drift."""
    found = {"messageIdTable": {"PROJECT": 2, "AMEND": 3}, "messageV3": {"LEAK": 10}}

    shares = shares_of_rows({"messageIdTable": 98, "messageV3": 40, "firstUnseen": 0}, found)

    assert shares == {"messageIdTable": 0.05, "messageV3": 0.0}


def test_a_table_that_lost_all_rows_differs_whole() -> None:
    assert shares_of_rows({"messageIdTable": 0}, {"messageIdTable": {"PROJECT": 7}}) == {"messageIdTable": 1.0}
