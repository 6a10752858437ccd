"""`pylog acls`: what the clients of a server may do."""

import json

import pytest
from cli_tools import output, pylog

from pyspark_log.server.security.acls import Acls
from tests.documents import documents_at


def test_add_list_remove(either):
    described = ("--principal", "User:anna", "--topic", "orders", "--operation", "read")
    assert output(either, "acls", "add", *described, "--operation", "write") == "Added 2 entries.\n"
    assert output(either, "acls", "add", *described) == "Added 0 entries.\n"
    assert output(either, "acls", "add", "--principal", "User:*", "--cluster", "--host", "::1", "--deny") == (
        "Added 1 entries.\n"
    )
    assert output(either, "acls", "list").splitlines() == [
        "PRINCIPAL  HOST             PERMISSION  OPERATION  RESOURCE  NAME           PATTERN",
        "User:anna  *                allow       read       topic     orders         literal",
        "User:anna  *                allow       write      topic     orders         literal",
        "User:*     0:0:0:0:0:0:0:1  deny        all        cluster   kafka-cluster  literal",
    ]
    assert json.loads(output(either, "acls", "list", "--json"))[0]["operation"] == "read"
    assert output(either, "acls", "remove", *described, "--yes") == "Removed 1 entries.\n"
    assert len(Acls(documents_at(either.path), ()).rules().acls) == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--topic", "t"), "--principal is missing"),
        (("--principal", "User:anna", "--topic", ""), "'' is not the beginning of a name"),
        (("--principal", "User:anna", "--topic", "*", "--prefixed"), "'*' without --prefixed is each one"),
        (("--principal", "anna", "--topic", "t"), "'anna' is no principal, such as User:anna"),
        (("--principal", "User:anna"), "Give --topic, --group, --transactional-id or --cluster"),
        (
            ("--principal", "User:anna", "--group", "g", "--operation", "write"),
            "A group has no operation write, but read, delete, describe, describe-configs, alter-configs.",
        ),
    ],
)
def test_what_makes_no_sense_changes_nothing(store, arguments, why):
    result = pylog(store, "acls", "add", *arguments)
    assert result.exit_code == 2
    assert why in result.stderr
    assert not Acls(documents_at(store.path), ()).rules().acls


def test_an_entry_that_is_not_there(store):
    result = pylog(store, "acls", "remove", "--principal", "User:anna", "--topic", "t", "--yes")
    assert result.exit_code == 1
    assert "there is no such entry; `pylog acls list` prints all" in result.stderr
