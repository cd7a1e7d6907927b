"""The library's errors as our own: what happened, where, and what to check."""

import asyncio
from typing import Any

from aio_pika import exceptions
from aiormq import ChannelAccessRefused, ChannelLockedResource, ConnectionNotAllowed

from mailmend.mailqueue.broker_tls import tls_error
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, MailmendError, TopologyMismatch

_GONE = (exceptions.AMQPError, OSError, RuntimeError, EOFError)
"""What the library raises when no broker answers, or not as agreed; a channel that is closed is a RuntimeError."""

_DENIED = (
    ChannelAccessRefused,
    ConnectionNotAllowed,
    exceptions.AuthenticationError,
    exceptions.ProbableAuthenticationError,
)

_AT_THE_LIMIT = "limit"
"""What the broker says when there are too many connections just now: that passes."""

_NOT_OPENED = "Connection.OpenOk"
"""What the library awaited when the broker refused the virtual host; the broker's own reason is lost there."""


def is_gone(error: Exception) -> bool:
    """Whether it is the library's error; a broker that hangs up between two frames raises a bare `Exception`."""
    return isinstance(error, _GONE) or type(error) is Exception


def ours(error: Exception, settings: BrokerSettings) -> MailmendError:
    if isinstance(error, ChannelLockedResource):
        return TopologyMismatch(
            f"a queue at {settings.place} is another connection's own: {reason_of(error)}",
            mend="See whose it is: rabbitmqctl list_queues name owner_pid exclusive",
        )
    if isinstance(error, _DENIED) and _AT_THE_LIMIT not in reason_of(error):
        return BrokerDenied(
            f"RabbitMQ at {settings.place} refuses the user {settings.username!r}: {reason_of(error)}",
            mend="Look at the user, the password and the permissions on the virtual host.",
        )
    if _AT_THE_LIMIT in reason_of(error):
        return BrokerUnreachable(
            f"RabbitMQ at {settings.place} takes no more of us just now: {reason_of(error)}",
            mend="Close what is not needed (rabbitmqctl list_connections user name channels), or raise the limit.",
        )
    if _NOT_OPENED in reason_of(error):
        return BrokerUnreachable(
            f"RabbitMQ at {settings.place} knows the user {settings.username!r}, and opens the virtual host to it not "
            "now: it is not there, is not for this user, or has as many connections as it may (the broker's log tells)",
            mend="See: rabbitmqctl list_vhosts; list_permissions -p V; list_vhost_limits -p V; list_user_limits",
        )
    return tls_error(reason_of(error), f"RabbitMQ at {settings.place}") or unreachable(settings, reason_of(error))


def unreachable(settings: BrokerSettings, reason: str) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"RabbitMQ at {settings.place} does not answer: {reason}",
        mend="Look whether it runs (rabbitmq-diagnostics status), and at host, port and TLS.",
    )


def why_closed(closing: "asyncio.Future[Any]") -> str:
    return "it was closed" if closing.cancelled() else reason_of(closing.exception())


def reason_of(error: BaseException | None) -> str:
    """The library's own text; its errors carry no credentials."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
