"""One broker of Kafka for all tests here, what they need to run Kafka's command-line classes, and Spark's connector."""

import gc
import itertools
import os
from pathlib import Path

import pytest
from kafka_cluster import Cluster
from kafka_tools import OLDER, SPARK_JARS, missing, missing_schemas, running_broker
from node_tools import RACKS, NodeServer, running_node

from pyspark_log import Store
from tests.server_fixtures import authority, server, store
from tests.spark.session import start_session

__all__ = ["authority", "server", "store"]

# Its assertions are explained in full, as those of tests.
pytest.register_assert_rewrite("spark_sides")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("slow")
            # Some of these tests leave a connection open when they end, as a node does that is killed.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def released_sockets():
    """They are collected while that is borne, and not in a test elsewhere."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def kafka():
    """For tests that run Kafka's classes. Without them they are skipped, or fail if PYLOG_REQUIRE names kafka."""
    _need(missing())


@pytest.fixture(scope="session")
def older_kafka(kafka):
    """For tests that run nodes of the older Kafka, too."""
    _need(missing(OLDER))


@pytest.fixture(scope="session")
def schema_classes():
    """For tests that run Java's classes of Avro and Protobuf; likewise."""
    _need(missing_schemas())


def _need(reason):
    if reason and "kafka" in os.environ.get("PYLOG_REQUIRE", "").split(","):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def broker(kafka, tmp_path_factory):
    """A broker that runs. A test that stops it starts it again."""
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(kafka, tmp_path_factory, object_server):
    """Spark with its own connector to Kafka; the tests that need it are skipped where there is none."""
    if not SPARK_JARS.is_dir():
        pytest.skip("Spark's connector to Kafka is not here: make kafka-jars")
    session = start_session(tmp_path_factory.mktemp("warehouse"), object_server)
    # Not when the session starts: its JVM may run already, for other tests.
    for jar in SPARK_JARS.glob("*.jar"):
        session.sql(f"ADD JAR '{jar}'")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def sides(broker, tmp_path_factory):
    """The two sides of tests/kafka/spark_sides.py: Kafka's, then ours."""
    from spark_sides import KafkaSide, Sides, StoreSide  # noqa: PLC0415  (its assertions are rewritten by then)

    kafkas = KafkaSide(broker)
    with Store.create(tmp_path_factory.mktemp("ours") / "store") as store:
        yield Sides(kafkas, StoreSide(store))
    kafkas.close()


_names = (f"stream{number}" for number in itertools.count())


@pytest.fixture
def topic():
    """The name of a topic for this test alone, which each side has yet to make."""
    return next(_names)


@pytest.fixture
def query(spark, sides, tmp_path):
    """Makes a query of both sides; what still runs at the end of the test is stopped."""
    from spark_sides import Queries  # noqa: PLC0415  (as above)

    made = []

    def make(**options):
        made.append(Queries(spark, sides, options, tmp_path / f"query{len(made)}"))
        return made[-1]

    yield make
    for queries in made:
        queries.stop()


@pytest.fixture
def cluster(kafka, tmp_path, request):
    """A cluster of two brokers, or of as many as the file says, which run."""
    with Cluster(tmp_path / "cluster", brokers=getattr(request.module, "BROKERS", 2)) as running:
        yield running


@pytest.fixture
def node(cluster, tmp_path):
    """A node of ours in it, which runs."""
    with running_node(cluster, tmp_path / "node") as made:
        yield made


@pytest.fixture
def nodes(kafka, tmp_path):
    """A cluster of a broker with the id 1, and the nodes 11 to 13, which run."""
    with Cluster(tmp_path / "cluster", brokers=1, single={1: {"broker.rack": RACKS[1]}}) as cluster:
        made = {}
        for number in (11, 12, 13):
            options = "--take-new-topics", "--rack", RACKS[number]
            made[number] = NodeServer(cluster, tmp_path / f"node{number}", *options, number=number)
        try:
            for number, node in made.items():
                node.start()
                cluster.join(number, node.port)
            for node in made.values():
                node.wait_for("unfenced")
            yield cluster, made
            for node in made.values():
                assert "Traceback" not in node.output(), node.output()
        finally:
            for node in made.values():
                node.kill()
