"""The group `mailmend queue` names its commands without importing them."""

import subprocess
import sys

from mailmend.admin.frame.command import Late
from mailmend.admin.frame.extras import imported
from mailmend.admin.queue.group import QUEUE


def test_the_group_lists_each_command_by_its_own_name_and_summary() -> None:
    late = [command for command in QUEUE.commands if isinstance(command, Late)]
    listed = [(command.name, command.summary) for command in late]
    own = [imported(command.place) for command in late]

    assert len(late) == len(QUEUE.commands) == 19
    assert listed == [(command.name, command.summary) for command in own]


def test_the_group_imports_no_connection() -> None:
    code = "import sys, mailmend.admin.queue.group; print('mailmend.admin.queue.connections' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "False\n"


def test_commands_load_neither_queues_nor_a_ledger_that_they_do_not_use() -> None:
    code = """
import sys
import mailmend.admin.messages.check
print([name for name in sys.modules if name.startswith("mailmend.mailqueue") and name.endswith(".mail_queue")])
import mailmend.admin.queue.enqueue
print([name for name in sys.modules if name.startswith("mailmend.delivery.ledger")])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n[]\n"
