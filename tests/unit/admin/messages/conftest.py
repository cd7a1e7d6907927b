"""What tests of mending as a person types it begin with."""

import pytest

from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine, Ended, Typed


@pytest.fixture
def mend(mailmend: CommandLine, cluster: ClusterTwin) -> Typed:
    """`repair messages` at once, a second after whatever happened before."""

    def call(*arguments: str) -> Ended:
        cluster.clock.advance(1)
        return mailmend("repair", "messages", *QUICK, "--json", *arguments)

    return call
