"""Documents of the smaller commands: the runbooks, the versions, the demo."""

from collections.abc import Sequence

from admin.present.document import Document, Markdown, Table
from admin.services.demo import DemoResult
from admin.services.runbooks import RunbookPage
from admin.services.versions import Versions
from admin.settings import LOOPBACK


def pages_document(found: Sequence[RunbookPage]) -> Document:
    rows = [(page.name, page.title) for page in found]
    json = {"runbooks": [{"name": name, "title": title} for name, title in rows]}
    return Document(json, (Table("Runbooks", ("name", "question"), rows), "Next: mailmend runbook show NAME"))


def page_document(page: RunbookPage) -> Document:
    return Document({"name": page.name, "title": page.title, "text": page.text}, (Markdown(page.text),))


def versions_document(found: Versions) -> Document:
    rows = [
        *((name, version) for name, version in found.packages.items() if version),
        ("Python", found.python),
        ("system", found.system),
        ("Spark connector", found.connector or "PySpark is not installed"),
        ("Java", found.java or "none was found"),
        ("server", found.server or found.unanswered or "not asked: name one with --host"),
    ]
    json = {
        **found.packages,
        "python": found.python,
        "system": found.system,
        "connector": found.connector,
        "java": found.java,
        "server": found.server,
        "unanswered": found.unanswered,
    }
    return Document(json, (Table("Versions", ("part", "version"), rows, frozenset({"version"})),))


def demo_document(found: DemoResult) -> Document:
    if found.port is None:
        return Document(None)
    running = f"It still runs: mailmend check --host {LOOPBACK} --port {found.port} --engine local"
    return Document(None, hints=("", running, f"Remove it:     mailmend local down --dir {found.folder}"))
