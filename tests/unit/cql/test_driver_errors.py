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

from cql.driver.driver_errors import failure_kind
from cql.driver.failures import DriverFailure

REFUSED = AuthenticationFailed("bad credentials")


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (REFUSED, DriverFailure.DENIED),
        (Unauthorized("no SELECT permission"), DriverFailure.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": REFUSED}), DriverFailure.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": ConnectionException("refused")}), DriverFailure.NO_HOST),
        (NoHostAvailable("none", ["10.0.0.1"]), DriverFailure.NO_HOST),
        (Unavailable("few", consistency=4, required_replicas=2, alive_replicas=1), DriverFailure.FEW_REPLICAS),
        (InvalidRequest("no such column"), DriverFailure.REFUSED),
        (SyntaxException(0x2000, "no viable alternative", {}), DriverFailure.REFUSED),
        (ConfigurationException(0x2300, "unknown option", {}), DriverFailure.REFUSED),
        (AlreadyExists("ks", "t"), DriverFailure.REFUSED),
        (ReadTimeout("late"), DriverFailure.SILENCE),
        (WriteTimeout("late", write_type=WriteType.CAS), DriverFailure.SILENCE),
        (WriteTimeout("late", write_type=WriteType.COUNTER), DriverFailure.SILENCE),
        (OperationTimedOut(), DriverFailure.SILENCE),
        (ReadFailure("failed"), DriverFailure.BROKEN),
        (WriteFailure("failed"), DriverFailure.BROKEN),
        (OverloadedErrorMessage(0x1001, "overloaded", {}), DriverFailure.BROKEN),
        (ServerError(0x0000, "stumbled", {}), DriverFailure.BROKEN),
        (ConnectionShutdown("gone"), DriverFailure.BROKEN),
        (OSError("reset by peer"), DriverFailure.BROKEN),
    ],
)
def test_each_of_the_drivers_errors_is_a_failure_kind_ours(error: Exception, trouble: DriverFailure) -> None:
    """The credentials' refusal also where the driver says that nobody answered."""
    assert failure_kind(error) is trouble
