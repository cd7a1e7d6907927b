"""Errors of Pulsar's client as our own: what, where, and how to mend it."""

from dataclasses import dataclass
from typing import Final

import _pulsar
from pulsar.asyncio import PulsarException

from mailmend.mailqueue.broker_tls import tls_error
from mailmend.mailqueue.pulsar.broker.settings import LOOK_AT_LOGIN, PulsarSettings
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, LeaseHeld, MailmendError, PublishFailed

_DENIED: Final = frozenset({_pulsar.Result.AuthenticationError, _pulsar.Result.AuthorizationError})
_FULL: Final = frozenset(
    {_pulsar.Result.ProducerBlockedQuotaExceededError, _pulsar.Result.ProducerBlockedQuotaExceededException}
)
_PASSING: Final = frozenset(
    {
        _pulsar.Result.BrokerMetadataError,
        _pulsar.Result.ServiceUnitNotReady,
        _pulsar.Result.NotConnected,
        _pulsar.Result.TooManyLookupRequestException,
    }
)
_LOOK_AT_SCHEMA: Final = "The schema of the topic is to be STRING: pulsar-admin schemas get TOPIC"
_REFUSED: Final = {
    _pulsar.Result.MessageTooBig: "Look at maxMessageSize in broker.conf.",
    _pulsar.Result.InvalidMessage: _LOOK_AT_SCHEMA,
    _pulsar.Result.IncompatibleSchema: _LOOK_AT_SCHEMA,
    _pulsar.Result.NotAllowedError: "Look at the policies there: pulsar-admin namespaces policies NAMESPACE",
    _pulsar.Result.TopicTerminated: "The topic was terminated, and cannot be opened again.",
}


@dataclass(frozen=True, slots=True)
class PulsarFailures:
    """What went wrong with one Pulsar."""

    settings: PulsarSettings

    def of(self, error: PulsarException) -> MailmendError:
        reason = _reason_of(error)
        if error.error() in _DENIED:
            return BrokerDenied(
                f"{self._place} refuses us: {reason}",
                mend=LOOK_AT_LOGIN,
            )
        return tls_error(reason, self._place) or self.away(reason)

    def away(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"{self._place} does not answer: {reason}",
            mend="Look whether it runs (pulsar-admin brokers healthcheck), and at host, port, TLS and login: "
            "the client says of a login that is refused only that nothing came.",
        )

    def of_a_message(self, error: PulsarException, topic: str) -> MailmendError:
        """Of one that is surely not in the topic."""
        found = error.error()
        if found in _FULL:
            return PublishFailed(
                f"{self._place} takes no message for {topic}: its backlog quota is exceeded",
                mend="Have mails leave it, or allow more: pulsar-admin topics stats TOPIC; "
                "pulsar-admin namespaces get-backlog-quotas NAMESPACE",
            )
        if found in _REFUSED:
            return PublishFailed(
                f"{self._place} refuses a message for {topic}: {_reason_of(error)}", mend=_REFUSED[found]
            )
        return self.of(error)

    def of_a_sent_message(self, error: PulsarException, topic: str) -> MailmendError:
        """Of one that was given to a producer: whatever befell that, the topic may have it."""
        found = error.error()
        if found in _REFUSED:
            return self.of_a_message(error, topic)
        if is_fenced(error):
            return LeaseHeld(f"another process has taken over {topic}", mend="Run the same again in a while.")
        if found == _pulsar.Result.Timeout:
            return self.of_silence(topic)
        why = "its backlog quota is exceeded" if found in _FULL else _reason_of(error)
        return PublishFailed(f"{self._place} did not confirm a message for {topic}: {why}", doubtful=True)

    def of_silence(self, topic: str) -> PublishFailed:
        within = f"within {self.settings.publish_seconds:g} s"
        return PublishFailed(f"{self._place} did not confirm a message for {topic} {within}", doubtful=True)

    @property
    def _place(self) -> str:
        return f"Pulsar at {self.settings.place}"


def is_fenced(error: PulsarException) -> bool:
    """Whether another producer has the topic for itself."""
    return error.error() in {_pulsar.Result.ProducerFenced, _pulsar.Result.ProducerBusy}


def is_passing(error: PulsarException) -> bool:
    """Whether a topic is on its way to a broker, rather than missing."""
    return error.error() in _PASSING


def _reason_of(error: PulsarException) -> str:
    words = str(error).partition(": ")[2]
    return words or error.error().name
