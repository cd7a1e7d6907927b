"""`mailmend projections`, as it is typed, on a cluster in memory."""

from pathlib import Path

import pytest

from mailmend.model.catalog.mail import PROJECTIONS
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import Table, columns
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine

USERS = Table("users", columns("user_id uuid", regular="email text, name text"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="name text, user_id uuid"))
BY_NAME = Table("users_by_name", columns("full_name text", "user_id uuid", "email text"))
LOGINS = Table("logins", columns("day date", "at timestamp"))
SHOP = Schema((), (USERS, BY_EMAIL, BY_NAME, LOGINS))
DECLARED = '[truth.users.mirror.users_by_email]\nleft_out = ["name"]\n'
LOWERED = '[truth.users.mirror.users_by_email]\ncomputed = { email = { lower = "email" } }\n'
PROJECTIONS_OF_MAIL = [projection.table.name for projection in PROJECTIONS.values()]
IN_SHOP = ("--keyspace", "shop")


@pytest.fixture(autouse=True)
def _shop(cluster: ClusterTwin) -> None:
    cluster.keyspaces["shop"] = SHOP
    cluster.replications["shop"] = cluster.replications["mail"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(DECLARED)
    return path


class TestVerify:
    """`mailmend projections verify`."""

    def test_a_file_that_fits_is_fine(self, mailmend: CommandLine, file: Path) -> None:
        ended = mailmend("projections", "verify", str(file), *IN_SHOP)
        assert ended.code == 0, ended.err
        assert "fits keyspace shop" in ended.out

    def test_scripts_get_what_follows_and_what_is_read(self, mailmend: CommandLine, file: Path) -> None:
        found = mailmend("projections", "verify", str(file), *IN_SHOP, "--json").json
        assert found["refused"] == []
        assert found["projections"] == [
            {
                "truth": "users",
                "kind": "mirror",
                "table": "users_by_email",
                "key": {"email": "email"},
                "compared": {"email": "email", "user_id": "user_id"},
            }
        ]
        assert [read["table"] for read in found["reads"]] == ["users", "users_by_email"]

    def test_a_computed_column_is_named_by_its_transform_and_read_by_its_source(
        self,
        mailmend: CommandLine,
        file: Path,
    ) -> None:
        file.write_text(LOWERED)
        found = mailmend("projections", "verify", str(file), *IN_SHOP, "--json").json
        (mirror,) = found["projections"]
        assert mirror["key"] == {"email": "lower(email)"}
        assert sorted(found["reads"][0]["columns"]) == ["email", "name", "user_id"]
        unseen = {(each["table"], each["why"]) for each in found["unseen"]}
        assert ("users_by_email", "a row of users without email has no row there") in unseen

    def test_what_a_check_cannot_see_is_named(self, mailmend: CommandLine, file: Path) -> None:
        found = mailmend("projections", "verify", str(file), *IN_SHOP, "--json").json
        unseen = {(each["table"], each["why"]) for each in found["unseen"]}
        assert ("users_by_email", "name is not compared: the file leaves it out") in unseen
        assert ("users_by_email", "a row of users without email has no row there") in unseen
        assert ("logins", "the file does not declare it") in unseen

    def test_each_place_that_does_not_fit_is_named(self, mailmend: CommandLine, file: Path) -> None:
        file.write_text('[truth.Users.mirror.users_by_email]\nleft_out = ["nmae", "x"]\n')
        ended = mailmend("projections", "verify", str(file), *IN_SHOP)
        assert ended.code == 2
        assert f"{file}, line 2, column 13: users_by_email has no column nmae" in ended.err
        assert "Did you mean 'name'?" in ended.err
        assert "2 errors." in ended.err

    def test_scripts_get_each_place(self, mailmend: CommandLine, file: Path) -> None:
        file.write_text("[truth.users.miror.users_by_email]\n[truth.user.mirror.x]")
        ended = mailmend("projections", "verify", str(file), *IN_SHOP, "--json")
        assert [(each["line"], each["column"]) for each in ended.json["refused"]] == [(1, 14)]
        assert ended.code == 2

    def test_a_file_that_is_not_there_names_init(self, mailmend: CommandLine) -> None:
        ended = mailmend("projections", "verify", "nowhere.toml", *IN_SHOP)
        assert ended.code == 2
        assert "nowhere.toml cannot be read" in ended.err
        assert "mailmend projections init" in ended.err

    def test_an_unknown_keyspace_is_wrong_use(self, mailmend: CommandLine, file: Path) -> None:
        ended = mailmend("projections", "verify", str(file), "--keyspace", "shoop")
        assert ended.code == 2
        assert "'shoop' does not exist" in ended.err


class TestShow:
    """`mailmend projections show`."""

    def test_a_table_names_what_follows_from_what(self, mailmend: CommandLine, file: Path) -> None:
        out = mailmend("projections", "show", str(file)).out
        assert "users_by_email" in out
        assert "mirror" in out

    def test_mermaid_draws_it(self, mailmend: CommandLine, file: Path) -> None:
        assert mailmend("projections", "show", str(file), "--mermaid").out == (
            'flowchart LR\n  t0["users"] -->|mirror| t1["users_by_email"]\n'
        )

    def test_scripts_get_the_canonical_text(self, mailmend: CommandLine, file: Path) -> None:
        assert mailmend("projections", "show", str(file), "--json").json["text"] == DECLARED

    def test_a_transform_is_a_rule(self, mailmend: CommandLine, file: Path) -> None:
        file.write_text(LOWERED)
        (mirror,) = mailmend("projections", "show", str(file), "--json").json["projections"]
        assert mirror["lines"] == ['computed = { email = { lower = "email" } }']

    def test_how_nulls_are_read_is_a_line_of_its_truth(self, mailmend: CommandLine, file: Path) -> None:
        file.write_text('[truth.users]\nnull_is = { name = "" }\n\n' + DECLARED)
        shown = mailmend("projections", "show", str(file), "--json").json
        assert shown["truths"] == [{"truth": "users", "lines": ['null_is = { name = "" }']}]
        assert "null_is" in mailmend("projections", "show", str(file)).out

    def test_the_mail_families_are_a_file_too(self, mailmend: CommandLine) -> None:
        shown = mailmend("projections", "show", "mail", "--json").json
        tables = [projection["table"] for projection in shown["projections"]]
        drawn = mailmend("projections", "show", "mail", "--mermaid").out

        assert tables == sorted(PROJECTIONS_OF_MAIL, key=tables.index)
        assert '["imapuidtable"] -->|mirror| t1["messageidtable"]' in drawn

    def test_a_file_that_cannot_be_used_is_wrong_use(self, mailmend: CommandLine, file: Path) -> None:
        file.write_text("[truth.users]")
        ended = mailmend("projections", "show", str(file))
        assert ended.code == 2
        assert "line 1, column 8: nothing follows from the truth users" in ended.err


class TestInit:
    """`mailmend projections init`."""

    def test_its_output_is_a_file_that_verifies(self, mailmend: CommandLine, file: Path) -> None:
        file.write_text(mailmend("projections", "init", *IN_SHOP).out)
        assert mailmend("projections", "verify", str(file), *IN_SHOP).code == 0

    def test_a_copy_under_another_key_is_proposed(self, mailmend: CommandLine) -> None:
        out = mailmend("projections", "init", *IN_SHOP).out
        declared = read_declaration(out, "proposal")
        assert declared.text == "[truth.users.mirror.users_by_email]\n"

    def test_scripts_get_the_questions(self, mailmend: CommandLine) -> None:
        found = mailmend("projections", "init", *IN_SHOP, "--json").json
        assert [asked["table"] for asked in found["questions"]] == ["users_by_name"]
        assert found["apart"] == ["logins"]

    def test_a_keyspace_without_copies_is_no_error(self, mailmend: CommandLine, cluster: ClusterTwin) -> None:
        cluster.keyspaces["shop"] = Schema((), (LOGINS,))
        ended = mailmend("projections", "init", *IN_SHOP)
        assert ended.code == 0
        assert "No table of the keyspace looks like a copy" in ended.err
