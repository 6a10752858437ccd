"""The metrics of a node in a cluster with a real broker."""

import pytest
from node_tools import NODE, NodeServer

from pyspark_log.server.pages.metrics import OF_NODES
from tests.ports import HOST, free_ports
from tests.scrapes import Scrape, get
from tests.server_tools import running
from tests.waiting import wait_until

BROKERS = 1


@pytest.mark.long
def test_what_is_led_and_not_in_sync(cluster, tmp_path):
    [port] = free_ports(1)

    def scraped():
        found = Scrape(get(port)[1])
        assert OF_NODES.items() <= found.names().items()
        return tuple(found.value(name) for name in OF_NODES)

    with running(NodeServer(cluster, tmp_path / "node", "--metrics-listen", f"{HOST}:{port}")) as node:
        cluster.join(NODE, node.port)
        wait_until(lambda: scraped() == (0, 0, 0, 3), "the node is unfenced, and leads nothing")
        cluster.create_topic("l", assignment=[[NODE, 1], [NODE, 1], [1, NODE]], configs={"min.insync.replicas": 2})
        wait_until(lambda: scraped() == (2, 0, 0, 3), "it leads two partitions")
        cluster[1].kill()
        wait_until(lambda: scraped() == (3, 3, 3, 3), "it leads the third, too, and no follower is in sync")
        cluster.start()
        wait_until(lambda: scraped() == (3, 0, 0, 3), "they are in sync again")
        assert node.output().count("broker 1 does not answer") == 1
