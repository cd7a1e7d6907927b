"""What a person reads of a document, as text."""

import io
from collections.abc import Sequence

from rich.console import Console

from mailmend.admin.frame.document import Document, Part
from mailmend.admin.frame.presenter import show


def text_of(document: Document | Sequence[Part], width: int = 120) -> str:
    """The document's body (or these parts) as it goes to a terminal of that width, without colours."""
    stream = io.StringIO()
    body = document.body if isinstance(document, Document) else document
    show(Document(body=body), Console(file=stream, width=width, highlight=False))
    return stream.getvalue()
