"""A cluster for all tests of a file, which is a server of ours, and a store for each test to mirror into."""

import itertools
import re

import pytest

from pyspark_log import Store
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.cluster import Cluster
from pyspark_log.mirror import Mirror, MirrorPlan
from pyspark_log.replication import Rules
from pyspark_log.storage.folder_store import FolderStore
from tests.server_fixtures import server

__all__ = ["server"]
_names = (f"mirrored{number}" for number in itertools.count())
# Many segments, and few index entries in each.
SMALL = {"segment.bytes": "4000", "index.interval.bytes": "1000", "retention.ms": "-1"}


@pytest.fixture
def upstream(server):
    """The store that is served."""
    with Store.open(server.path) as store:
        yield store


@pytest.fixture
def topic(upstream):
    """A topic of the cluster with two partitions and small segments."""
    name = next(_names)
    upstream.create_topic(name, 2, SMALL)
    return name


@pytest.fixture
def mirror(server, tmp_path):
    """Mirrors topics until now, into the store of the test; the results by partition."""

    def run(*patterns, groups=None, **rules):
        plan = MirrorPlan(
            [re.compile(pattern) for pattern in patterns], groups and re.compile(groups), True, Rules(**rules)
        )
        with (
            FolderStore.open_or_create(tmp_path / "mirror") as store,
            Cluster([(server.host, server.port)], ClientConfig()) as cluster,
        ):
            return {one.at: one for one in Mirror(store, cluster, plan).run()}

    run.path = tmp_path / "mirror"
    return run
