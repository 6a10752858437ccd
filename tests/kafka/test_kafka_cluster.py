"""The clusters of kafka_cluster.py: records survive the loss of a leader, and nodes of two versions replicate."""

import hashlib

import pytest
from confluent_kafka import KafkaError, Producer
from kafka_clients import KafkaConsumer, TopicPartition
from kafka_cluster import SCRAM, Cluster, secured, wait_until
from kafka_tools import NEWEST, OLDER, PATIENCE

# Other tests fail, too, where such a cluster does not work.
pytestmark = pytest.mark.long
COUNT = 200


def produce(cluster, topic, values, **options):
    """Writes values to partition 0; returns when all replicas in sync have them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, **options})
    failed = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(PATIENCE) == 0
    assert failed == []


def refusal(login):
    """The first error of a client."""
    errors = []
    client = Producer(login | {"error_cb": errors.append})
    wait_until(lambda: client.poll(0.1) or errors, "it is refused")
    return errors[0].code()


def consumed(cluster, topic):
    """The values in partition 0."""
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","), enable_auto_commit=False)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end, values = consumer.end_offsets([place])[place], []

    def read():
        values.extend(record.value for record in consumer.poll(timeout_ms=200).get(place, ()))
        return consumer.position(place) >= end

    wait_until(read, f"{topic} is read up to {end}")
    consumer.close()
    return values


def replicas(cluster, topic, numbers):
    """A hash of what each broker has of partition 0."""
    files = [sorted(cluster.folder_of(number, topic).glob("*.log")) for number in numbers]
    return [hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest() for paths in files]


@pytest.fixture(scope="module")
def cluster(kafka, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), settings={"min.insync.replicas": 2}) as found:
        yield found


def test_records_survive_the_leader(cluster):
    cluster.create_topic("kept", assignment=[[1, 2, 3]])
    produce(cluster, "kept", [b"%d" % number for number in range(COUNT)])
    assert cluster.leader_of("kept") == 1
    cluster[1].kill()
    assert cluster.wait_for_leader("kept") in {2, 3}
    produce(cluster, "kept", [b"%d" % number for number in range(COUNT, 2 * COUNT)])
    assert consumed(cluster, "kept") == [b"%d" % number for number in range(2 * COUNT)]
    cluster[1].start()
    cluster.wait_for_isr("kept", 0, {1, 2, 3})
    cluster.elect("kept")
    assert cluster.wait_for_leader("kept", other_than=[2, 3]) == 1
    wait_until(lambda: len(set(replicas(cluster, "kept", [1, 2, 3]))) == 1, "all brokers have the same bytes")


def test_a_paused_broker_leaves_the_replicas_in_sync(cluster):
    cluster.create_topic("paused", assignment=[[2, 3]])
    cluster[3].pause()
    cluster.wait_for_isr("paused", 0, {2})
    cluster[3].resume()
    cluster.wait_for_isr("paused", 0, {2, 3})


def test_topics_are_changed(cluster):
    cluster.create_topic("changed", 1, 2, configs={"retention.ms": 1_000_000})
    first = cluster.topic_id("changed")
    cluster.add_partitions("changed", [[3, 1]])
    assert cluster.leader_of("changed", 1) == 3
    cluster.reassign("changed", 1, [2, 1])
    cluster.elect("changed", 1)
    assert cluster.wait_for_leader("changed", 1) == 2
    cluster.alter_configs("changed", {"retention.ms": None, "segment.ms": 3_600_000})
    told = cluster.run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "changed")
    assert "segment.ms=3600000" in told
    assert "retention.ms" not in told
    produce(cluster, "changed", [b"a", b"b", b"c"])
    cluster.delete_records("changed", 0, 2)
    assert consumed(cluster, "changed") == [b"c"]
    cluster.delete_topic("changed")
    assert cluster.topic_id("changed") is None
    cluster.create_topic("changed")
    assert cluster.topic_id("changed") not in {first, None}


@pytest.mark.parametrize("controllers", [NEWEST, OLDER])
def test_two_versions_replicate(older_kafka, tmp_path, controllers):
    versions = {1: NEWEST, 2: OLDER, 101: controllers}
    with Cluster(tmp_path, brokers=2, versions=versions) as cluster:
        assert [cluster[number].version for number in (1, 2, 101)] == [NEWEST, OLDER, controllers]
        for topic, assignment in (("newer", [1, 2]), ("older", [2, 1])):
            cluster.create_topic(topic, assignment=[assignment])
            produce(cluster, topic, [b"%d" % number for number in range(COUNT)], **{"compression.type": "zstd"})
            cluster.wait_for_isr(topic, 0, {1, 2})
            assert len(set(replicas(cluster, topic, [1, 2]))) == 1
        cluster[2].kill()
        assert cluster.wait_for_leader("older") == 1
        assert consumed(cluster, "older") == [b"%d" % number for number in range(COUNT)]


def test_listeners_with_a_login(kafka, tmp_path):
    users = {"anna": "correct horse"}
    authority, settings = secured(tmp_path, users)
    with Cluster(tmp_path, brokers=2, listeners=["SASL_PLAINTEXT", "SASL_SSL"], settings=settings) as cluster:
        cluster.create_topic("secured", copies=2)
        cluster.add_scram_users(users)
        for protocol, mechanism in (("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", SCRAM)):
            login = {"bootstrap.servers": cluster.bootstrap_of(protocol), "security.protocol": protocol}
            login |= {"ssl.ca.location": str(authority.certificate), "sasl.mechanism": mechanism}
            login |= {"sasl.username": "anna", "sasl.password": users["anna"]}
            produce(cluster, "secured", [b"a"], **login)
            assert refusal(login | {"sasl.password": "wrong"}) == KafkaError._AUTHENTICATION
        assert consumed(cluster, "secured") == [b"a", b"a"]


def test_controllers_that_are_brokers(kafka, tmp_path):
    with Cluster(tmp_path, brokers=3, controllers=3, combined=True) as cluster:
        assert list(cluster.nodes) == [1, 2, 3]
        cluster.create_topic("combined", assignment=[[1, 2, 3]])
        produce(cluster, "combined", [b"a"])
        cluster[1].kill()
        assert cluster.wait_for_leader("combined") in {2, 3}
        assert consumed(cluster, "combined") == [b"a"]
