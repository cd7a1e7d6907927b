"""The sums of a load, as a document."""

from dataclasses import asdict

from admin.present.document import Document
from admin.services.load import LoadResult
from model.errors import ExitCode


def document_of(result: LoadResult) -> Document:
    """The totals, and the commands that repair what lags."""
    sums, keyspace = result.sums, result.keyspace
    unnoted = f"Next: mailmend repair messages --keyspace {keyspace}"
    said = (
        (True, f"Stored {sums.stored:,} messages ({sums.octets:,} bytes)."),
        (sums.already, f"{sums.already:,} had been stored by an earlier load that was interrupted."),
        (sums.refused, f"{sums.refused:,} were refused; each was named."),
        (sums.lagged, f"{sums.lagged:,} lag. Next: mailmend repair lags --keyspace {keyspace}"),
        (sums.unjournalled, f"{sums.unjournalled:,} of them nobody could take note of. {unnoted}"),
    )
    lines = tuple(line for wanted, line in said if wanted)
    exit_code = ExitCode.PARTLY_FAILED if sums.refused or sums.unjournalled else ExitCode.FINE
    return Document({"keyspace": keyspace, **asdict(sums)}, lines, exit=exit_code)
