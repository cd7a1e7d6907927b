"""What tests of `mailmend jobs` begin with: a settings file that declares jobs, half past one in Berlin."""

import pytest

from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine
from tests.support.jobs import NIGHT, Declare, Shell
from tests.support.mail_states import MailKeyspace


@pytest.fixture
def declare(mailmend: CommandLine) -> Declare:
    def write(text: str) -> None:
        folder = mailmend.home / "config" / "mailmend"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    return write


@pytest.fixture
def shell(mailmend: CommandLine, declare: Declare, cluster: ClusterTwin) -> Shell:
    return mailmend, declare, cluster


@pytest.fixture
def night(cluster: ClusterTwin, mail: MailKeyspace) -> ClusterTwin:
    cluster.clock.turn_to(NIGHT)
    return cluster
