"""What an export wrote, as a document."""

from admin.present.document import Document, Verbatim
from admin.services.export import ExportResult


def document_of(result: ExportResult) -> Document:
    """The files and whether they were up to date; or the text itself."""
    if result.text is not None:
        return Document(body=(Verbatim(result.text),))
    changed = {"stale" if result.check else "written": [str(file) for file in result.stale]}
    json = {"files": [str(file) for file in result.files], **changed, "exit": int(result.exit)}
    was = "is not up to date" if result.check else "written"
    lines = [f"{file} {was if file in result.stale else 'is up to date'}" for file in result.files]
    if result.check and result.stale:
        lines.append("Next: the same command without --check")
    return Document(json, lines, result.exit)
