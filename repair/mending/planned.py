"""Fixes of an approved plan: each is made exactly as approved, or not at all."""

from dataclasses import replace

from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.ledger.before_images import image_digest


def as_planned(found: Finding) -> Finding:
    """The finding; MOVED without writes where its plan was made from other rows, write times or another verdict."""
    planned = found.suspect.planned
    if not planned or found.error is not None:
        return found
    if found.verdict is Verdict.AGREE or found.result is Verdict.FIXED or image_digest(found) == planned:
        return found
    return replace(found.ended(), result=Verdict.MOVED, due=False)
