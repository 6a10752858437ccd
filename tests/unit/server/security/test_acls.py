"""The ACLs of a store: their document, and addresses in them. tests/kafka compares the decisions with Kafka's."""

import json

import pytest

from pyspark_log.admin import verify
from pyspark_log.errors import DescriptionError
from pyspark_log.server.handlers.access import acls as acl_handlers
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource, Rules, host_of
from tests.documents import documents_at

READ = Acl(Resource.TOPIC, "orders", Pattern.LITERAL, "User:anna", "*", Operation.READ, Permission.ALLOW)
ASKED = "127.0.0.1", Operation.READ, Resource.TOPIC, "orders"


@pytest.fixture
def acls(kept):
    return Acls(documents_at(kept.path), {"User:admin"})


def test_a_change_counts_at_once_and_elsewhere(acls, kept):
    other = Acls(documents_at(kept.path), ())
    assert not acls.rules().allow("User:anna", *ASKED)
    other.change(lambda known: known | {READ})
    assert acls.rules().allow("User:anna", *ASKED)
    assert acls.rules() is acls.rules()
    other.change(lambda known: known - {READ})
    assert not acls.rules().allow("User:anna", *ASKED)
    assert acls.rules().allow("User:admin", *ASKED)


def test_the_document(acls, kept):
    acls.change(lambda _: [READ, READ._replace(host="10.0.0.7", permission=Permission.DENY)])
    content = json.loads(kept.bytes_of("acls.json"))
    assert content["version"] == 1
    assert content["acls"][0] == {
        "resource": "TOPIC", "name": "orders", "pattern": "LITERAL", "principal": "User:anna", "host": "*",
        "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
    assert [str(finding) for finding in verify(kept.path).findings] == []
    rules = Acls(documents_at(kept.path), ()).rules()
    assert rules.allow("User:anna", *ASKED)
    assert not rules.allow("User:anna", "10.0.0.7", *ASKED[1:])


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1, "acls": [{"resource": "TOPIC"}]}'])
def test_a_damaged_document_is_no_empty_one(acls, kept, content):
    kept.write("acls.json", content)
    with pytest.raises(DescriptionError, match="no valid list of ACLs"):
        acls.rules()
    with pytest.raises(DescriptionError):
        acls.change(lambda known: known | {READ})
    assert kept.bytes_of("acls.json") == content


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1"), ("[::1]", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.7", "10.0.0.7"), ("fe80::0a%eth0", "fe80:0:0:0:0:0:0:a"), ("*", "*"), ("x", "x"),
    ],
)  # fmt: skip
def test_addresses_are_javas(address, expected):
    assert host_of(address) == expected


def test_what_gives_a_right_to_any_resource():
    """A rule for another operation, or one that denies, gives none."""
    write = READ._replace(operation=Operation.WRITE)
    asked = "User:anna", "127.0.0.1", Operation.WRITE, Resource.TOPIC
    assert not Rules([READ]).allow_any(*asked)
    assert not Rules([READ, write._replace(permission=Permission.DENY)]).allow_any(*asked)
    assert not Rules([write, write._replace(permission=Permission.DENY)]).allow_any(*asked)
    for right in (write, write._replace(operation=Operation.ALL), write._replace(name="*")):
        assert Rules([right]).allow_any(*asked)


@pytest.mark.parametrize(("pattern", "name", "found"), [
    (1, None, "*lp"), (1, "orders", "l"), (Pattern.LITERAL, "orders", "l"), (Pattern.LITERAL, None, "*l"),
    (Pattern.PREFIXED, "ord", "p"), (Pattern.PREFIXED, "orders", ""), (2, "orders", "*lp"), (2, "ordinary", "*p"),
    (2, "other", "*"),
])  # fmt: skip
def test_which_rules_a_filter_names(pattern, name, found):
    """2 is MATCH: all rules that are about a resource of that name."""
    rules = {"*": READ._replace(name="*"), "l": READ, "p": READ._replace(name="ord", pattern=Pattern.PREFIXED)}
    assert "".join(mark for mark, one in rules.items() if acl_handlers._is_about(one, pattern, name)) == found
