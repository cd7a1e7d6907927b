"""The group `mailmend jobs` names some of its commands without importing them."""

from mailmend.admin.frame.command import Late
from mailmend.admin.frame.extras import imported
from mailmend.admin.jobs.jobs import JOBS


def test_the_group_lists_each_late_command_by_its_own_name_and_summary() -> None:
    late = [command for command in JOBS.commands if isinstance(command, Late)]
    listed = [(command.name, command.summary) for command in late]
    own = [imported(command.place) for command in late]

    assert listed == [(command.name, command.summary) for command in own]
    assert {command.name for command in late} == {"run", "serve", "set", "history", "install"}
