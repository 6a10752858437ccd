"""Users, ACLs and quotas of a cluster: images in, decisions out."""

from dataclasses import replace

import pytest

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.messages import AccessControlEntryRecord, UserScramCredentialRecord
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.image import Image, Position
from pyspark_log.server.node.cluster_clients import ClusterClients, clients_of_cluster
from pyspark_log.server.node.config import ClusterConfig
from pyspark_log.server.quotas import DEFAULT, ClientQuotas, Entity, Throttles
from pyspark_log.server.security import Acls, Users
from pyspark_log.server.security.acls import Acl, Operation, Pattern, Permission, Resource
from pyspark_log.server.security.users import make_credential
from pyspark_log.server.server import ServerConfig, serve
from pyspark_log.storage.folder_store import FolderStore
from tests.documents import documents_at

ADMIN = "User:admin"


class Cluster:
    """The image of a cluster, which the test changes, and what follows from it."""

    def __init__(self, folder):
        self.image, self.clients = Image(), ClusterClients()
        kept = documents_at(folder)
        self.users, self.quotas = Users(kept, self.clients.users), ClientQuotas(kept, self.clients.quotas)
        self.acls = Acls(kept, {ADMIN}, self.clients.rules({ADMIN}))

    def change(self, **parts):
        self.image = replace(self.image, **parts)
        self.clients.follow(self.image)

    def allows(self, principal, operation, name, resource=Resource.TOPIC):
        return self.acls.current().allow(principal, "10.0.0.1", operation, resource, name)


@pytest.fixture
def cluster(tmp_path):
    return Cluster(str(tmp_path))


# ---- users


def scram(user, password, mechanism=1):
    made = make_credential({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}[mechanism], password, 4096)
    return {(user, mechanism): UserScramCredentialRecord(
        user, mechanism, made.salt, made.stored_key, made.server_key, made.iterations
    )}  # fmt: skip


def test_users(cluster):
    assert not cluster.users.has_password("anna", "secret")
    cluster.change(scram=scram("anna", "secret") | scram("ben", "other", 2))
    assert cluster.users.has_password("anna", "secret")
    assert cluster.users.has_password("ben", "other")
    assert not cluster.users.has_password("anna", "other")
    credential, exists = cluster.users.credential("anna", "SCRAM-SHA-256")
    assert exists
    assert credential.iterations == 4096
    assert not cluster.users.credential("anna", "SCRAM-SHA-512")[1]
    cluster.change(scram=scram("anna", "new"))
    assert not cluster.users.has_password("anna", "secret")
    assert not cluster.users.has_password("ben", "other")
    assert [*cluster.users.all()] == ["anna"]


def test_a_user_that_does_not_exist_looks_the_same_after_a_change(cluster):
    cluster.change(scram=scram("anna", "secret"))
    before, _ = cluster.users.credential("nobody", "SCRAM-SHA-256")
    cluster.change(scram=scram("anna", "new"))
    after, exists = cluster.users.credential("nobody", "SCRAM-SHA-256")
    assert (before.salt, before.iterations, exists) == (after.salt, after.iterations, False)


def test_a_mechanism_that_is_not_known_is_none_to_log_in_by(cluster):
    [record] = scram("anna", "secret").values()
    cluster.change(scram={("anna", 3): record._replace(mechanism=3)})
    assert not cluster.users.has_password("anna", "secret")


# ---- ACLs


def acl(number, principal, operation, name, *, denies=False, pattern=Pattern.LITERAL, resource=Resource.TOPIC):
    permission = Permission.DENY if denies else Permission.ALLOW
    entry_id = bytes([number]) * 16
    fields = int(resource), name, int(pattern), principal, "*", int(operation), int(permission)
    return {entry_id: AccessControlEntryRecord(entry_id, *fields)}


def test_rights(cluster):
    assert not cluster.allows("User:anna", Operation.READ, "t")
    assert cluster.allows(ADMIN, Operation.READ, "t")
    allowed = acl(1, "User:anna", Operation.READ, "t", pattern=Pattern.PREFIXED)
    cluster.change(acls=allowed)
    assert cluster.allows("User:anna", Operation.READ, "tea")
    assert cluster.allows("User:anna", Operation.DESCRIBE, "tea")
    assert not cluster.allows("User:anna", Operation.WRITE, "tea")
    assert not cluster.allows("User:ben", Operation.READ, "tea")
    cluster.change(acls=allowed | acl(2, "User:*", Operation.READ, "tea", denies=True))
    assert not cluster.allows("User:anna", Operation.READ, "tea")
    assert cluster.allows("User:anna", Operation.READ, "t")
    cluster.change(acls={})
    assert not cluster.allows("User:anna", Operation.READ, "t")


def test_rules_are_made_when_acls_change_and_not_before(cluster):
    cluster.change(acls=acl(1, "User:anna", Operation.READ, "t"))
    rules, table, users = cluster.acls.current(), cluster.quotas.table(), cluster.users.all()
    cluster.change(position=Position(7, 1), topic_ids={"t": bytes(16)})
    assert cluster.acls.current() is rules
    assert cluster.quotas.table() is table
    assert cluster.users.all() is users
    cluster.change(acls=dict(cluster.image.acls))
    assert cluster.acls.current() is not rules


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_an_acl_that_is_not_known_leaves_super_users_alone(cluster, field, caplog):
    known = acl(1, "User:anna", Operation.READ, "t")
    [record] = acl(2, "User:anna", Operation.READ, "t", denies=True).values()
    cluster.change(acls=known | {record.id: record._replace(**{field: 99})})
    for _ in range(2):
        assert not cluster.allows("User:anna", Operation.READ, "t")
        assert cluster.allows(ADMIN, Operation.READ, "t")
        with pytest.raises(MetadataError, match="an ACL of the cluster is of a kind that this version does not know"):
            cluster.acls.rules()
    assert caplog.text.count("only super users are served") == 1
    cluster.change(acls=known)
    assert cluster.allows("User:anna", Operation.READ, "t")


# ---- quotas


def test_quotas(cluster):
    assert cluster.quotas.table().quotas == {}
    cluster.change(
        quotas={
            (("user", "anna"),): {"producer_byte_rate": 1000.0},
            (("client-id", None), ("user", None)): {"consumer_byte_rate": 2000.0, "producer_byte_rate": 5.0},
            (("ip", None),): {"connection_creation_rate": 3.0},
        }
    )
    table = cluster.quotas.table()
    assert table.quotas.keys() == {Entity("anna"), Entity(DEFAULT, DEFAULT), Entity(ip=DEFAULT)}
    assert {name: one.value for name, one in table.bounds("anna", "app").items()} == {
        "producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0,
    }  # fmt: skip
    assert table.connection_rate("10.0.0.1") == 3


def test_quotas_that_are_never_used_up(cluster):
    """Kafka takes them; they count before those of lower levels."""
    cluster.change(
        quotas={
            (("user", "anna"),): {"producer_byte_rate": float("inf"), "request_percentage": float("nan")},
            (("user", None),): {"producer_byte_rate": 1.0, "request_percentage": 1.0},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": float("inf")},
            (("ip", None),): {"connection_creation_rate": 3.0},
        }
    )
    table = cluster.quotas.table()
    assert table.bounds("anna", "app") == {}
    assert table.bounds("ben", "app").keys() == {"producer_byte_rate", "request_percentage"}
    assert table.connection_rate("10.0.0.1") is None
    assert table.connection_rate("10.0.0.2") == 3


def test_a_quota_counts_within_a_tenth_of_a_second(cluster):
    now = 1000.0
    throttles = Throttles(cluster.quotas, lambda: now)
    assert throttles.of("anna", "app") is None
    cluster.change(quotas={(("user", "anna"),): {"producer_byte_rate": 1000.0}})
    now += 0.1
    throttle = throttles.of("anna", "app")
    throttle.produced(20_000)
    assert throttle.pause_ms > 0
    cluster.change(quotas={})
    now += 0.1
    assert throttles.of("anna", "app") is None


@pytest.mark.parametrize(("quota", "counted"), [("controller_mutation_rate", 1), ("producer_byte_rate", 0)])
def test_a_pause_that_the_controllers_say(cluster, quota, counted):
    cluster.change(quotas={(("user", "anna"),): {quota: 1.0}})
    throttles = Throttles(cluster.quotas, lambda: 1000.0)
    throttle = throttles.of("anna", "app")
    throttle.forwarded(700)
    throttle.forwarded(0)
    throttle.note()
    assert throttle.pause_ms == 700
    assert [one.throttled for one in throttles.usages()] == [1] * counted


# ---- what the store has


def test_a_store_with_acls_is_refused(tmp_path):
    """As its administrator may take them for those that count."""
    FolderStore.create(tmp_path / "store").close()
    folder = str(tmp_path / "store")
    denied = Acl(Resource.TOPIC, "t", Pattern.LITERAL, "User:anna", "*", Operation.READ, Permission.DENY)
    Acls(documents_at(folder), ()).change(lambda _: [denied])
    config = ServerConfig(port=0, cluster=ClusterConfig([]), super_users={ADMIN})
    with (
        FolderStore.open(folder) as store,
        pytest.raises(InvalidConfigError, match="the store has 1 ACLs of its own, and a node uses those of its"),
    ):
        serve(store, config, lambda _: None)
    # Without --acls none count.
    assert clients_of_cluster(documents_at(folder), has_rules=False).users.content().users == {}
    Acls(documents_at(folder), ()).change(lambda _: [])
    clients_of_cluster(documents_at(folder), has_rules=True)


def test_of_a_store_with_quotas_is_said_that_they_do_not_count(tmp_path, caplog):
    clients_of_cluster(documents_at(tmp_path), has_rules=True)
    assert not caplog.text
    ClientQuotas(documents_at(tmp_path)).change(lambda _: {Entity("anna"): {"producer_byte_rate": 1.0}})
    assert clients_of_cluster(documents_at(tmp_path), has_rules=True).quotas.content().quotas == {}
    assert "the store's own quotas are not used: a node has those of its cluster" in caplog.text


# ---- changes


def test_a_node_changes_none_of_them(cluster):
    for change in (
        lambda: cluster.users.change({"anna": {}}),
        lambda: cluster.quotas.change(lambda known: known),
        lambda: cluster.acls.change(lambda known: known),
    ):
        with pytest.raises(InvalidConfigError, match="the controllers of the cluster change that"):
            change()
