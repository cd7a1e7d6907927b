"""The environment in which commands reach the local servers: what `local up` prints, to be typed or evaluated."""

import shlex
from collections.abc import Mapping

from mailmend.admin.local.server import ServerState, ServerStatus
from mailmend.admin.local.servers import LocalStatus

_BUCKET = "mail"
"""The bucket that is named; `aws s3 mb` creates it."""


def exports_of(found: LocalStatus) -> dict[str, str]:
    """The variables by name. Of two brokers that answer, the first has the variables of the broker."""
    variables = dict[str, str]()
    settings = found.cluster.settings
    if settings and any(node.state is ServerState.UP for node in found.cluster.nodes):
        variables["MAILMEND_HOST"] = settings.hosts[0]
        variables["MAILMEND_PORT"] = str(settings.native_port)
    for service in found.services:
        if service.state is ServerState.UP:
            for name, value in _of_service(service).items():
                variables.setdefault(name, value)
    return variables


def _of_service(service: ServerStatus) -> Mapping[str, str]:
    contacts = service.contacts
    match service.name:
        case "rabbitmq":
            return {
                "MAILMEND_BROKER": contacts["amqp"].replace("amqp://", "amqp://guest@"),
                "MAILMEND_BROKER_PASSWORD": "guest",
                "MAILMEND_BROKER_MANAGEMENT": contacts["management"],
            }
        case "pulsar":
            return {
                "MAILMEND_BROKER": f"{contacts['pulsar']}/public/default",
                "MAILMEND_BROKER_MANAGEMENT": contacts["admin"],
            }
        case "s3":
            return {
                "MAILMEND_BLOBS": f"s3://{_BUCKET}?endpoint={contacts['s3']}",
                "AWS_SHARED_CREDENTIALS_FILE": contacts["keys"],
            }
        case _:
            return {}


def export_lines(variables: Mapping[str, str]) -> str:
    """A line for each variable, as POSIX shells read it."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
