"""`mailmend runbook`: the operator's pages, also where there is no browser."""

import click
from rich.markdown import Markdown

from admin.present.presenter import rows_grid, stdout_console, write_json
from admin.runbook import page_named, pages


@click.group(
    epilog="""\b
Examples:
  mailmend runbook list
  mailmend runbook show flags-differ"""
)
def runbook() -> None:
    """Pages for the operator's questions: when, check, do, verify, undo."""


@runbook.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_pages(*, as_json: bool) -> None:
    """List the pages."""
    found = [{"name": page.name, "title": page.title} for page in pages()]
    if as_json:
        write_json({"runbooks": found})
        return
    console = stdout_console()
    console.print(rows_grid("Runbooks", ("name", "question"), [(page["name"], page["title"]) for page in found]))
    console.print("Next: mailmend runbook show NAME")


@runbook.command("show")
@click.argument("name")
def show_page(name: str) -> None:
    """Show a page; as Markdown where stdout is no terminal."""
    page, console = page_named(name), stdout_console()
    if console.is_terminal:
        console.print(Markdown(page.text))
    else:
        click.echo(page.text, nl=False)
