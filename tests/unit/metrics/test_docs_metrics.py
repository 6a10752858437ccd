"""docs/reference/metrics.md and the dashboard: they name what a server exports, with all its kinds of clients."""

import json
import re

import pytest
from confluent_kafka import Consumer, Producer
from server_requests import batch, produce

from pyspark_log import Store
from pyspark_log.metrics import StoreMetrics
from pyspark_log.monitoring import Snapshots
from pyspark_log.server.pages.metrics import OF_NODES
from pyspark_log.server.quotas import OF_CLIENTS, ClientQuotas, Entity
from tests.documents import documents_at
from tests.paths import ROOT
from tests.scrapes import MeasuredServer, Scrape
from tests.server_tools import PATIENCE, Peer, served
from tests.store_tools import rows
from tests.waiting import wait_until

PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "examples/grafana/pyspark-log.json").read_text(encoding="utf-8"))
TABLE = {
    name: (re.findall(r"`(\w+)`", labels), meaning, of.split(", "))
    for name, labels, meaning, _, of in re.findall(
        r"^\| `(\w+)` \| (.*?) ?\| (.+?) \| (.*?) ?\| (store, server|server) \|$", PAGE, re.MULTILINE
    )
}
NODES = dict(re.findall(r"^\| `(\w+)` \| \| (.+?) \| \| node \|$", PAGE, re.MULTILINE))
#: What Prometheus adds, and a name of its own.
OF_PROMETHEUS = {"job", "instance"}
NAME = re.compile(r"\b(?:kafka|pylog|process)_\w+")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The metrics of a server under load, and those that its store has without it."""
    folder = tmp_path_factory.mktemp("server")
    Store.create(folder / "store").close()
    ClientQuotas(documents_at(folder / "store")).change(lambda _: {Entity("ANONYMOUS"): dict.fromkeys(OF_CLIENTS, 1e9)})
    with Store.open(folder / "store") as store, served(folder / "store", folder, kind=MeasuredServer) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for number in range(100):
            producer.produce("t", value=b"%d" % number)
        assert producer.flush(PATIENCE) == 0
        consumer = Consumer({
            "bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        })  # fmt: skip
        consumer.subscribe(["t"])
        assert len(consumer.consume(100, PATIENCE)) == 100
        consumer.commit(asynchronous=False)
        writer = store.publishes.writer(store.publishes.plan(["t"]))
        writer.append("t", rows(b"a"))
        store.publishes.publish("q", 0, writer.finish())
        with Peer(server) as peer:
            assert produce(peer, "none", batch(b"a")).error_code != 0
        wait_until(lambda: server.scrape().by_labels("kafka_consumergroup_lag"), "there is a lag")
        scrape = server.scrape()
        consumer.close()
        return scrape, Scrape(StoreMetrics(Snapshots(store)).text().decode())


def test_the_table(found):
    server, store = found
    assert NODES == OF_NODES  # tests/kafka/test_node_metrics.py scrapes one
    assert {name: meaning for name, (_, meaning, _) in TABLE.items()} == server.names()
    of_store = {name for name, (_, _, of) in TABLE.items() if "store" in of}
    assert of_store == set(store.names())
    for scrape in found:
        for name, (labels, _, _) in TABLE.items():
            series = scrape.by_labels(name) or scrape.by_labels(f"{name}_sum")
            assert all(set(of) == set(labels) for of, _ in series), name
            if scrape is server or name in of_store:
                assert series, f"{name} has no series"


def test_the_numbers_of_metrics():
    assert len(TABLE) > 40


def queries():
    """Those of the page and the dashboard, each with its place."""
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.startswith("| `"):
            yield from (("the page", one.replace("\\|", "|")) for one in re.findall(r"`([^`]*_[^`]*)`", line))
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])[1]


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_a_query_asks_for_what_there_is(found, where, query):
    server, _ = found
    names = set(NAME.findall(query))
    assert names or query.startswith("up"), where
    for name in names - NODES.keys():
        series = server.by_labels(name)
        assert series, f"{where}: {name} is not exported"
        for selector in re.findall(rf"\b{name}{{([^}}]*)}}", query):
            used = set(re.findall(r"(\w+)(?:=~|=|!=|!~)\"", selector)) - OF_PROMETHEUS
            assert used <= set(series[0][0]), f"{where}: {name} has no labels {used}"
        by = {label for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in re.findall(r"\w+", labels)}
        assert by <= set(series[0][0]) | OF_PROMETHEUS, f"{where}: {name} has not all labels of {by}"


def test_the_dashboard():
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "job", "topic", "group"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) > 10
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == variables
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert all('job=~"$job"' in target["expr"] for target in panel["targets"])
