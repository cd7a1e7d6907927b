"""Tables and views that a declaration names, looked up in a live schema. Pure."""

from typing import Final

from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import COUNT, TRUTH, VIEW
from mailmend.model.projections.toml_values import toml_key
from mailmend.model.table import Table, is_plain_name
from mailmend.model.texts import names_instead
from mailmend.model.toml_places import TomlPath
from mailmend.repair.declared_conditions import Misfits
from mailmend.repair.declared_views import other_conditions

GENERATOR: Final = "generator"


def live_table(
    misfits: Misfits,
    live: Schema,
    path: TomlPath,
    spelling: str,
    what: str,
) -> Table | None:
    """The live table of a name; None where it is not there, or cannot be compared."""
    if what == VIEW:
        return _view(misfits, live, path, spelling)
    view = live.view(spelling)
    if view is not None:
        header = f"[{TRUTH}.{toml_key(view.base)}.{VIEW}.{toml_key(spelling)}]"
        mend = f"The server derives it from its base table: declare it as {header}."
        misfits.note(path, f"the {what} {spelling} is a materialised view", mend)
        return None
    table = live.table(spelling)
    if table is None or table.name != name_of(spelling):
        mend = names_instead(spelling, [other.spelling for other in live.tables])
        misfits.note(path, f"there is no table {spelling}", mend)
        return None
    if table.has_counters and what not in (COUNT, GENERATOR):
        mend = f"A counter is not copied by row. Counters of groups are declared as {COUNT}."
        misfits.note(path, f"the {what} {spelling} has counters", mend)
        return None
    if not is_plain_name(spelling):
        mend = "Rows of such a table are not read or written yet: leave it out."
        misfits.note(path, f"the name of the table {spelling} needs double quotes", mend)
        return None
    return table


def _view(misfits: Misfits, live: Schema, path: TomlPath, spelling: str) -> Table | None:
    """The columns and key of a materialised view of the truth that the path names."""
    view = live.view(spelling)
    if view is None or view.name != name_of(spelling):
        mend = names_instead(spelling, [other.spelling for other in live.views])
        misfits.note(path, f"there is no materialised view {spelling}", mend)
        return None
    base = toml_key(view.base)
    if name_of(view.base) != name_of(str(path[1])):
        mend = f"Declare it there: [{TRUTH}.{base}.{VIEW}.{toml_key(spelling)}]"
        misfits.note(path, f"{spelling} is a view of {view.base}", mend)
        return None
    if not is_plain_name(spelling):
        mend = "Rows of such a view are not read yet: leave it out."
        misfits.note(path, f"the name of the view {spelling} needs double quotes", mend)
        return None
    conditions = other_conditions(view)
    if conditions:
        mend = "Only views of every row that has a whole key are compared: leave it out."
        misfits.note(path, f"{spelling} has the condition {' AND '.join(conditions)}", mend)
        return None
    return view.table
