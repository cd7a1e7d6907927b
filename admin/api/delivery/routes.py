"""All that a server of deliveries answers over HTTP."""

from typing import Final

from admin.api.application import Api
from admin.api.delivery.conditions import CONDITIONS
from admin.api.delivery.entries import ENTRIES
from admin.api.delivery.explain import EXPLAIN
from admin.api.delivery.policies import POLICIES
from admin.api.delivery.shared import LOG, READY, bad_request
from admin.api.delivery.suspensions import SUSPENSIONS
from admin.api.monitoring import METRICS, health_router

DELIVERIES: Final = Api(
    about="""\
One server of deliveries, `mailmend delivery serve`, and the queue that it delivers. What is answered is what the
command prints with --json; what is ordered is done in the name of the token, and is on record.""",
    log=LOG,
    routers=(ENTRIES, EXPLAIN, SUSPENSIONS, CONDITIONS, POLICIES, METRICS, health_router("/health"), READY),
    bad_request=bad_request,
)
