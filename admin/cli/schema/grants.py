"""`mailmend schema grants`: the roles that mailmend's works need, as CQL for cqlsh, or against what a cluster has."""

from collections.abc import Sequence
from typing import Final

import click

from admin.cli.kinds import Named
from admin.cli.options import connection_options_where
from admin.cli.schema.granted import Script, granting, possible, revoking, show_comparisons, show_scripts
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place
from cql.applying import ledger_steps
from cql.granting import holding_of
from cql.introspect import live_schema
from model.errors import WrongUse
from model.schema.grants import ROLES, Comparison, Keyspaces, Role, compared, has_work
from model.schema.table import identifier

PREFIX: Final = "mailmend_"
_PREFIX: Final = Named("prefix", lambda value: identifier(f"{value}x", "prefix")[:-1])

_EPILOG: Final = """\b
Examples:
  mailmend schema grants --with-create-role | cqlsh -u dba         roles without a login, and all that they need
  mailmend schema grants --role reader --role repairer             of two roles
  mailmend schema grants --role repairer --check                   what is missing, what is too much, what mends it
  mailmend schema grants --check --json                            the same, for a script
  mailmend schema grants --role loader --revoke | cqlsh -u dba     take it back

\b
Exit codes: 0 fine, 1 --check found something missing or superfluous, 2 wrong use, 4 the cluster cannot be reached, or
does not let us ask."""


@click.command(epilog=_EPILOG)
@click.option("--role", "roles", type=click.Choice(tuple(ROLES)), multiple=True, help="Of this role; may be repeated.")
@click.option(
    "--name-prefix", type=_PREFIX, default=PREFIX, show_default=True, help="What the roles' names begin with."
)
@click.option("--with-create-role", is_flag=True, help="CREATE ROLE first, without a login: the password is yours.")
@click.option("--revoke", is_flag=True, help="REVOKE instead of GRANT; with --with-create-role DROP ROLE too.")
@click.option("--all", "everything", is_flag=True, help="On tables that are not there too; asks no cluster.")
@click.option("--check", is_flag=True, help="Compare with what the cluster grants, and print what would mend it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options_where(lambda options: not options["everything"])
def grants(
    connection: ConnectionSettings,
    roles: tuple[str, ...],
    name_prefix: str,
    *,
    with_create_role: bool,
    revoke: bool,
    everything: bool,
    check: bool,
    as_json: bool,
) -> int:
    """Print the least that each role needs, as CQL. Runs none of it, and never prints a password.

    Without --role: every role of which a table is there. Only on what is there can anything be granted, so tables of
    the ledger that are missing are created by the same script, and mail tables that are missing are named.
    """
    if check and (revoke or everything or with_create_role):
        raise WrongUse("--check only compares", mend="Leave out --revoke, --all and --with-create-role.")
    named = tuple(ROLES[name] for name in dict.fromkeys(roles))
    if everything:
        keyspaces = Keyspaces(connection.keyspace, connection.ledger_keyspace)
        scripts = _scripts(
            named or tuple(ROLES.values()), keyspaces, name_prefix, revoke=revoke, roles=with_create_role
        )
        return show_scripts(keyspaces, (), scripts, as_json=as_json)
    with open_place(connection) as place:
        keyspaces = _live(place, ledger_too=revoke)
        wanted = named or tuple(role for role in ROLES.values() if has_work(role, keyspaces))
        creations = () if revoke else ledger_steps(place.cluster, keyspaces.ledger, keyspaces.mail)
        first = [step.cql for step in creations]
        if check:
            return show_comparisons(keyspaces, first, _compared(place, wanted, keyspaces, name_prefix), as_json=as_json)
    scripts = _scripts(wanted, keyspaces, name_prefix, revoke=revoke, roles=with_create_role)
    return show_scripts(keyspaces, first, scripts, as_json=as_json)


def _scripts(wanted: Sequence[Role], keyspaces: Keyspaces, prefix: str, *, revoke: bool, roles: bool) -> list[Script]:
    if revoke:
        return [revoking(role, prefix + role.name, keyspaces, drop=roles) for role in wanted]
    return [granting(role, prefix + role.name, keyspaces, create=roles) for role in wanted]


def _compared(place: Place, wanted: Sequence[Role], keyspaces: Keyspaces, prefix: str) -> list[tuple[Role, Comparison]]:
    return [
        (role, compared(possible(role, keyspaces), holding_of(place.cluster, prefix + role.name))) for role in wanted
    ]


def _live(place: Place, *, ledger_too: bool) -> Keyspaces:
    """What is there of the mail keyspace; of the ledger everything counts as there, since the script creates it.

    Raises:
        UnknownKeyspace: there is no mail keyspace.
    """
    ledger = place.connection.ledger_keyspace
    there = frozenset(one.name for one in live_schema(place.cluster, ledger).tables) if ledger_too else None
    mail = live_schema(place.cluster, place.mail.name)
    return Keyspaces(place.mail.name, ledger, frozenset(one.name for one in mail.tables), there)
