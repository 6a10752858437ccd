"""Users, ACLs and quotas at two servers over one store of either kind: what one changes counts at the other."""

import contextlib

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from server_requests import batch, produce_request

from pyspark_log.errors import DescriptionError
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource
from pyspark_log.server.security.users import salted_password
from tests import requests as r
from tests.documents import documents_at, place_of
from tests.security_tools import add_users, log_in, scram_log_in
from tests.server_tools import Peer, Server, make_store, served
from tests.waiting import PATIENCE, wait_until

_PASSWORD = "a long password"
_READ = Acl(Resource.TOPIC, "t", Pattern.LITERAL, "User:carl", "*", Operation.READ, Permission.ALLOW)
_OPTIONS = ("--sasl-mechanisms", "PLAIN,SCRAM-SHA-256", "--acls", "--super-users", "User:admin")


@pytest.fixture(scope="module")
def pair(served_place, tmp_path_factory):
    """Two servers; admin is a super user, and carl another user."""
    folder = tmp_path_factory.mktemp("pair")
    make_store(folder, ("t",), served_place)
    add_users(served_place, dict.fromkeys(("admin", "carl"), _PASSWORD))
    with contextlib.ExitStack() as stack:
        servers = []
        for number in ("1", "2"):
            (folder / number).mkdir()
            servers.append(stack.enter_context(served(served_place, folder / number, "--shared", *_OPTIONS)))
        # A request of librdkafka fails where a broker comes or leaves meanwhile.
        wait_until(lambda: all(_brokers(server) == 2 for server in servers), "they know of each other")
        yield servers


def _brokers(server):
    with _peer(server, "admin") as peer:
        return len(peer.ask(r.metadata("t"), 12).brokers)


@pytest.fixture
def admins(pair):
    """A client of each server, for administration, which is a super user."""
    how = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "admin",
        "sasl.password": _PASSWORD,
    }  # fmt: skip
    return [AdminClient({"bootstrap.servers": server.bootstrap, **how}) for server in pair]


def _finish(futures):
    return [future.result(PATIENCE) for future in futures.values()]


def _peer(server, user="carl"):
    peer = Peer(server)
    assert log_in(peer, user, _PASSWORD).error_code == 0
    return peer


def _may_log_in(server, user, password, log=scram_log_in):
    with Peer(server) as peer:
        return log(peer, user, password).error_code == 0


def test_users(pair):
    """By requests: a client for administration sends them to the controller, as which each server names itself."""
    first, second = pair
    salt = bytes(20)
    credential = ("dora", 1, 5000, salt, salted_password("SCRAM-SHA-256", "secret", salt, 5000))
    with _peer(first, "admin") as peer:
        assert [one.error_code for one in peer.ask(r.alter_users((), [credential]), 0).results] == [0]
    # Where it was changed it counts at once.
    assert _may_log_in(first, "dora", "secret")
    assert not _may_log_in(first, "dora", "other")
    wait_until(lambda: _may_log_in(second, "dora", "secret", log_in), "the other one knows the user", every=0.3)
    with _peer(second, "admin") as peer:
        users = peer.ask(m.DescribeUserScramCredentialsRequest(None), 0).results
        assert [one.iterations for user in users for one in user.credential_infos if user.user == "dora"] == [5000]
        assert [one.error_code for one in peer.ask(r.alter_users([("dora", 1)]), 0).results] == [0]
    assert not _may_log_in(second, "dora", "secret")
    wait_until(lambda: not _may_log_in(first, "dora", "secret"), "the user is gone at the other one", every=0.3)


def _binding(kind, name, principal="User:carl"):
    return kind(
        ResourceType.TOPIC, name, ResourcePatternType.LITERAL, principal, "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def test_rights(pair, admins):
    with _peer(pair[1]) as peer:

        def is_shown():
            [topic] = peer.ask(r.metadata("t"), 12).topics
            assert topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return topic.error_code == ErrorCode.NONE

        assert not is_shown()
        _finish(admins[0].create_acls([_binding(AclBinding, "t")]))
        wait_until(is_shown, "this one has the entry")
        entries = _binding(AclBindingFilter, "t")
        wait_until(lambda: len(admins[1].describe_acls(entries).result(PATIENCE)) == 1, "the one that is asked has it")
        _finish(admins[0].delete_acls([_binding(AclBindingFilter, "t")]))
        wait_until(lambda: not is_shown(), "the entry is gone here")


def test_changes_at_the_same_time_are_all_there(pair, admins):
    futures = []
    for number in range(6):
        for admin, which in zip(admins, "ab", strict=True):
            futures += admin.create_acls([_binding(AclBinding, f"{which}{number}", "User:dora")]).values()
    for future in futures:
        assert future.result(PATIENCE) is None
    assert len(Acls(documents_at(pair[0].path), ()).rules().acls) == 12
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:dora", None, AclOperation.ANY, AclPermissionType.ANY
    )
    # The second one has decided last, or follows.
    wait_until(lambda: len(admins[1].describe_acls(every).result(PATIENCE)) == 12, "it has all")
    _finish(admins[0].delete_acls([every]))


def test_quotas(pair):
    with _peer(pair[0], "admin") as first, _peer(pair[1], "admin") as second:
        _set_rate(first, 1.0)
        wait_until(lambda: _pause(pair[1]) > 0, "the other one limits the user")
        component = m.DescribeClientQuotasRequest.ComponentData("user", 0, "admin")
        [described] = second.ask(m.DescribeClientQuotasRequest([component], True), 1).entries
        assert [(one.key, one.value) for one in described.values] == [("producer_byte_rate", 1.0)]
        _set_rate(first, None)
        wait_until(lambda: _pause(pair[1]) == 0, "it does not any more")


def _set_rate(peer, value):
    change = m.AlterClientQuotasRequest
    operation = change.OpData("producer_byte_rate", value or 0.0, value is None)
    entry = change.EntryData([change.EntityData("user", "admin")], [operation])
    assert [one.error_code for one in peer.ask(change([entry], False), 1).entries] == [0]


def _pause(server):
    """The pause after a request of a new connection."""
    with _peer(server, "admin") as peer:
        return peer.ask(produce_request("t", batch(b"x" * 1000)), 9).throttle_time_ms


# ---- damage


@pytest.fixture
def place(served_url, tmp_path):
    """A store in an object store with users, and an entry for carl."""
    make_store(tmp_path, ("t",), served_url)
    add_users(served_url, dict.fromkeys(("admin", "carl"), _PASSWORD))
    Acls(documents_at(served_url), ()).change(lambda _: [_READ])
    return place_of(served_url)


def _damage(place, name):
    """Changes a byte of its object; what brings it back."""
    objects, document = place.log.objects, place.log.follow().documents[name]
    before = bytes(objects.get(document.object).data)
    objects.put(document.object, bytes([before[0] ^ 1]) + before[1:])
    return lambda: objects.put(document.object, before)


def test_damage_opens_nothing(place, tmp_path):
    bring_back = _damage(place, "acls.json")
    with pytest.raises(DescriptionError, match="is damaged"):
        Acls(documents_at(place.path), ()).rules()
    with served(place.path, tmp_path, *_OPTIONS) as server, _peer(server) as carl, _peer(server, "admin") as admin:
        assert _error(carl) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert _error(admin) == 0
        server.wait_for("only super users are served: s3://")
        bring_back()
        wait_until(lambda: _error(carl) == 0, "it is read again")


def _error(peer):
    [topic] = peer.ask(r.metadata("t"), 12).topics
    return topic.error_code


def test_a_damaged_list_of_users_lets_none_in(place, tmp_path):
    bring_back = _damage(place, "users.json")
    with served(place.path, tmp_path, *_OPTIONS) as server:
        for log in (log_in, scram_log_in):
            assert not _may_log_in(server, "admin", _PASSWORD, log)
        server.wait_for("users cannot be authenticated: s3://")
        bring_back()
        wait_until(lambda: _may_log_in(server, "admin", _PASSWORD), "they are read again", every=0.3)


def test_no_server_starts_without_its_quotas(place, tmp_path):
    place.write("quotas.json", b"{")
    with pytest.raises(RuntimeError, match="is no valid list of quotas"):
        Server(place.path, tmp_path, *_OPTIONS).start()
