"""The page of the schema: what `mailmend schema verify` finds."""

from collections.abc import Mapping
from typing import Any, Final

from mailmend.admin.page.table import PageData, PageRequest, WebPage
from mailmend.admin.schema.verify import verified, verify_document


def look(data: PageData, _: PageRequest) -> Mapping[str, Any]:
    result = verified(data.opened)
    return {"document": verify_document(result), "agrees": result.found.agrees}


PAGE: Final = WebPage(
    path="/schema",
    title="Schema",
    menu="Schema",
    template="schema.html",
    look=look,
)
