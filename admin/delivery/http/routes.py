"""All that a server of deliveries answers over HTTP."""

from typing import Final

from mailmend.admin.delivery.http.entries import ENTRIES
from mailmend.admin.delivery.http.explain import EXPLAIN
from mailmend.admin.delivery.http.orders import CONDITIONS, SUSPENSIONS
from mailmend.admin.delivery.http.policies import POLICIES
from mailmend.admin.delivery.http.shared import LOG, READY, bad_request
from mailmend.admin.frame.http.application import Api
from mailmend.admin.frame.http.monitoring import METRICS, health_router

DELIVERIES: Final = Api(
    about="""\
One server of deliveries, `mailmend delivery serve`, and the queue that it delivers. What is answered is what the
command prints with --json; what is ordered is done in the name of the token, and is on record.""",
    log=LOG,
    routers=(ENTRIES, EXPLAIN, SUSPENSIONS, CONDITIONS, POLICIES, METRICS, health_router("/health"), READY),
    bad_request=bad_request,
)
