"""The driver's errors as ours."""

import pytest
from cassandra import (
    AlreadyExists,
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ConnectionShutdown
from cassandra.protocol import ConfigurationException, OverloadedErrorMessage, ServerError, SyntaxException

from cql.driver.driver_errors import trouble_of
from cql.driver.failures import Trouble

REFUSED = AuthenticationFailed("bad credentials")


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (REFUSED, Trouble.DENIED),
        (Unauthorized("no SELECT permission"), Trouble.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": REFUSED}), Trouble.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": ConnectionException("refused")}), Trouble.NO_HOST),
        (NoHostAvailable("none", ["10.0.0.1"]), Trouble.NO_HOST),
        (Unavailable("few", consistency=4, required_replicas=2, alive_replicas=1), Trouble.FEW_REPLICAS),
        (InvalidRequest("no such column"), Trouble.REFUSED),
        (SyntaxException(0x2000, "no viable alternative", {}), Trouble.REFUSED),
        (ConfigurationException(0x2300, "unknown option", {}), Trouble.REFUSED),
        (AlreadyExists("ks", "t"), Trouble.REFUSED),
        (ReadTimeout("late"), Trouble.SILENCE),
        (WriteTimeout("late", write_type=WriteType.CAS), Trouble.SILENCE),
        (WriteTimeout("late", write_type=WriteType.COUNTER), Trouble.SILENCE),
        (OperationTimedOut(), Trouble.SILENCE),
        (ReadFailure("failed"), Trouble.BROKEN),
        (WriteFailure("failed"), Trouble.BROKEN),
        (OverloadedErrorMessage(0x1001, "overloaded", {}), Trouble.BROKEN),
        (ServerError(0x0000, "stumbled", {}), Trouble.BROKEN),
        (ConnectionShutdown("gone"), Trouble.BROKEN),
        (OSError("reset by peer"), Trouble.BROKEN),
    ],
)
def test_each_of_the_drivers_errors_is_a_trouble_of_ours(error: Exception, trouble: Trouble) -> None:
    """The credentials' refusal also where the driver says that nobody answered."""
    assert trouble_of(error) is trouble
