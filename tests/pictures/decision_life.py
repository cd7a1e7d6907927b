"""The life of policy decisions as a picture: a lane for each mail of a run of the pickup engine."""

from collections.abc import Iterator, Sequence
from typing import Final

from mailmend.delivery.policy.policy import CounterPolicy
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.replaying import LimitKind
from tests.pictures.decision_run import POLICIES, Lane, Refusal
from tests.pictures.drawing import MARGIN, Place, opening, rectangle, text

LABELS: Final = 170
PIXELS: Final = 25
"""For a second."""
LANE: Final = 34
GAP: Final = 10
HEAD: Final = 84
AXIS: Final = 40
TICK_SECONDS: Final = 5


def svg_of_lanes(lanes: Sequence[Lane]) -> str:
    last = max(lane.ended for lane in lanes)
    width = 2 * MARGIN + LABELS + PIXELS * (last + 1)
    height = 2 * MARGIN + HEAD + len(lanes) * (LANE + GAP) + AXIS
    lines = list(opening("The life of policy decisions: mails wait at a counter, are picked, and end", width, height))
    lines.append(text(MARGIN, MARGIN + 14, "title", "Two policies, and five mails that come at once"))
    for number, policy in enumerate(POLICIES):
        lines.append(text(MARGIN, MARGIN + 38 + 18 * number, "text", f"Policy {number + 1}: {words_of(policy)}"))
    for number, lane in enumerate(lanes):
        lines += _lane(lane, MARGIN + HEAD + number * (LANE + GAP))
    lines += _axis(MARGIN + HEAD + len(lanes) * (LANE + GAP) + 4, last)
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def words_of(policy: CounterPolicy) -> str:
    counted = "all mails"
    if policy.fields:
        counted = "mails with the same " + " and ".join(field.value for field in policy.fields)
    assert policy.default is not None
    if policy.default.concurrency is not None:
        return f"{LimitKind.CONCURRENCY.value} {policy.default.concurrency} for {counted}"
    rate = policy.default.rate
    assert rate is not None
    return f"{LimitKind.RATE.value} {rate.count}/{rate.interval // SECOND} for {counted} (1 begins in 4 seconds)"


def _lane(lane: Lane, y: float) -> Iterator[str]:
    middle = y + LANE / 2 + 4
    yield text(MARGIN, middle, "text strong", lane.mail)
    yield text(MARGIN + 54, middle, "text", f"to {lane.domain}")
    ends = [*(refusal.at for refusal in lane.refusals[1:]), lane.began]
    for refusal, end in zip(lane.refusals, ends, strict=False):
        yield from _wait(refusal, end, y)
    yield rectangle(_place(lane.began, lane.ended, y), "picked", 5)
    yield text(_x(lane.began) + 8, middle, "inverse", f"picked at {lane.began:g} s")


def _wait(refusal: Refusal, end: float, y: float) -> Iterator[str]:
    place = _place(refusal.at, end, y)
    yield rectangle(place, "waits", 5)
    words = f"policy {refusal.policy + 1}: {refusal.limit.value}"
    if len(words) * 7 > place.width:
        words = refusal.limit.value
    yield text(place.x + 8, y + LANE / 2 + 4, "label", words)


def _x(seconds: float) -> float:
    return MARGIN + LABELS + seconds * PIXELS


def _place(begin: float, end: float, y: float) -> Place:
    return Place(_x(begin), y, (end - begin) * PIXELS - 2, LANE)


def _axis(y: float, last: float) -> Iterator[str]:
    yield f'  <path class="arrow" d="M{_x(0):.0f} {y:.0f}H{_x(last):.0f}"/>'
    for seconds in range(0, round(last) + 1, TICK_SECONDS):
        yield f'  <path class="arrow" d="M{_x(seconds):.0f} {y:.0f}v5"/>'
        yield text(_x(seconds), y + 20, "label", f"{seconds} s", "middle")
