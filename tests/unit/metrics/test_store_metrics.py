"""The metrics of a store without a server: a folder, a broker's, an object store; whole, damaged, or not there."""

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
from cli_tools import output, pylog

from pyspark_log import Store, TopicPartition
from pyspark_log.errors import PublishPendingError
from pyspark_log.metrics import StoreMetrics
from pyspark_log.monitoring import Snapshots
from tests.object_proxy import pass_on, proxy
from tests.scrapes import Scrape, get
from tests.server_tools import PATIENCE
from tests.store_tools import publish, rows, stage, store_with

store_of_t = store_with(partitions=3)


def metrics(store, *arguments):
    return Scrape(output(store, "metrics", *arguments))


def publish_as(store, publisher, number, *values):
    plan = store.publishes.plan(["t"])
    writer = store.publishes.writer(plan)
    writer.append("t", rows(*values))
    store.publishes.publish(publisher, number, writer.finish())


def test_what_a_store_has(place):
    with Store.create(place) as store:
        store.create_topic("t", 3)
        publish_as(store, "q", 7, b"a", b"b", b"c")
        written = {number: store.latest_offset("t", number) for number in range(3)}
        assert sum(written.values()) == 3
        store.groups["g"].commit({TopicPartition("t", 0): 0, TopicPartition("t", 1): written[1]})
        decided = store.publishes.publishers()[0].time
        sizes = {number: store.partitions.size("t", number) for number in range(3)}
    found = metrics(place)
    assert found.value("kafka_topic_partitions", topic="t") == 3
    for number in store.partitions.written("t"):
        at = {"topic": "t", "partition": number}
        assert found.value("kafka_log_log_logendoffset", **at) == written[number]
        assert found.value("kafka_log_log_logstartoffset", **at) == 0
        assert found.value("kafka_log_log_size", **at) == sizes[number] > 0
        assert found.value("kafka_log_log_numlogsegments", **at) == 1
        assert found.value("kafka_cluster_partition_laststableoffsetlag", **at) == 0
    in_group = {"consumergroup": "g", "topic": "t"}
    assert found.value("kafka_consumergroup_lag", **in_group, partition=0) == written[0]
    assert found.value("kafka_consumergroup_lag", **in_group, partition=1) == 0
    assert found.value("kafka_consumergroup_current_offset", **in_group, partition=1) == written[1]
    assert found.value("kafka_consumergroup_lag", **in_group, partition=2) is None
    assert found.value("kafka_consumergroup_state", consumergroup="g", state="Empty") == 1
    assert found.value("kafka_consumergroup_members", consumergroup="g") == 0
    assert found.value("pylog_publisher_number", publisher="q") == 7
    assert found.value("pylog_publisher_timestamp_seconds", publisher="q") == decided / 1000
    assert found.value("pylog_publishes_pending") == 0
    assert found.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0


def test_the_lag_is_that_of_the_command(store_of_t):
    store_of_t.append("t", rows(*[b"v"] * 100))
    for group, offset in (("g", 3), ("h", 0)):
        store_of_t.groups[group].commit({TopicPartition("t", number): offset for number in range(3)})
    store_of_t.groups["g"].commit({TopicPartition("gone", 0): 0})
    found = {
        (labels["consumergroup"], labels["topic"], int(labels["partition"])): value
        for labels, value in metrics(store_of_t).by_labels("kafka_consumergroup_lag")
    }
    described = json.loads(output(store_of_t, "groups", "describe", "--all-groups", "--json"))
    lags = {(row["group"], row["topic"], row["partition"]): row["lag"] for row in described}
    assert lags.pop(("g", "gone", 0)) is None
    assert found == lags
    assert len(found) == 6


def test_a_publish_that_is_pending_is_counted_and_applied(store_of_t, monkeypatch):
    def die(*_, **__):
        raise OSError(5, "stop")

    with monkeypatch.context() as patched:
        patched.setattr("pyspark_log.storage.publish.applier.apply", die)
        with pytest.raises(PublishPendingError, match="stop"):
            publish(store_of_t.decisions, "q", 0, stage(store_of_t, rows(b"a")))
        current = StoreMetrics(Snapshots(store_of_t, fresh_s=0))
        assert Scrape(current.text().decode()).value("pylog_publishes_pending") == 1
    current = StoreMetrics(Snapshots(store_of_t, fresh_s=0))
    assert Scrape(current.text().decode()).value("pylog_publishes_pending") == 1
    found = Scrape(current.text().decode())
    assert found.value("pylog_publishes_pending") == 0
    assert sum(value for _, value in found.by_labels("kafka_log_log_logendoffset")) >= 1


def test_a_publisher_that_publishes_once_has_no_series(store_of_t, monkeypatch):
    monkeypatch.setattr("pyspark_log.storage.publish.publishing.tidy", lambda *_, **__: None)
    publish(store_of_t.decisions, "once", 0, stage(store_of_t, rows(b"a")), one_off=True)
    publish(store_of_t.decisions, "q", 0, stage(store_of_t, rows(b"a")))
    found = metrics(store_of_t).by_labels("pylog_publisher_number")
    assert found == [({"publisher": "q"}, 0)]


def test_a_brokers_folder(root):
    with Store.open(root) as store:
        end, start = store.latest_offset("t", 0), store.earliest_offset("t", 0)
        described = store.partitions.describe("t", 0)
    found = metrics(root)
    at = {"topic": "t", "partition": 0}
    assert found.value("kafka_log_log_logendoffset", **at) == end > 0
    assert found.value("kafka_log_log_logstartoffset", **at) == start
    assert found.value("kafka_log_log_size", **at) == described.size
    assert found.value("kafka_log_log_numlogsegments", **at) == 3
    assert found.by_labels("kafka_consumergroup_lag") == found.by_labels("pylog_publisher_number") == []


def test_a_partition_that_cannot_be_read(store_of_t):
    store_of_t.append("t", rows(b"a"), partition=0)
    store_of_t.append("t", rows(b"a"), partition=1)
    store_of_t.groups["g"].commit({TopicPartition("t", number): 0 for number in range(3)})
    shutil.rmtree(f"{store_of_t.path}/data/t-0")
    found = metrics(store_of_t.path)
    assert found.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 1
    assert found.value("kafka_log_log_logendoffset", topic="t", partition=0) is None
    assert found.value("kafka_log_log_logendoffset", topic="t", partition=1) == 1
    lags = {labels["partition"]: value for labels, value in found.by_labels("kafka_consumergroup_lag")}
    assert lags == {"1": 1, "2": 0}


def test_a_store_that_is_not_there_any_more(store_of_t, tmp_path, caplog):
    current = StoreMetrics(Snapshots(store_of_t, fresh_s=0))
    assert Scrape(current.text().decode()).value("pylog_store_up") == 1
    shutil.move(store_of_t.path, tmp_path / "aside")
    found = Scrape(current.text().decode())
    assert found.values == {("pylog_store_up", frozenset()): 0}
    assert "cannot be read" in caplog.text
    shutil.move(tmp_path / "aside", store_of_t.path)
    assert Scrape(current.text().decode()).value("pylog_store_up") == 1


def test_what_was_read_lately_is_not_read_again(store_of_t):
    current = StoreMetrics(Snapshots(store_of_t, fresh_s=3600))
    before = current.text()
    store_of_t.append("t", rows(b"a"))
    assert current.text() is before
    assert StoreMetrics(Snapshots(store_of_t)).text() != before


def test_a_file_for_the_node_exporter(store_of_t, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert output(store_of_t, "metrics", "--textfile", "pylog.prom") == ""
        assert Scrape((tmp_path / "pylog.prom").read_text()).value("kafka_topic_partitions", topic="t") == 3
    assert [name for name in os.listdir(tmp_path) if name != "store"] == ["pylog.prom"]
    assert pylog(store_of_t, "metrics", "--textfile", "a", "--listen", "127.0.0.1:0").exit_code == 2


def test_they_are_served(store_of_t):
    command = [sys.executable, "-m", "pyspark_log.cli.start", "metrics", "--store", store_of_t.path]
    run = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    try:
        line = run.stderr.readline()
        assert line.startswith(f"Metrics of {store_of_t.path} on http://127.0.0.1:")
        port = int(line.rpartition(":")[2].partition("/")[0])
        status, text = get(port)
        assert (status, Scrape(text).value("kafka_topic_partitions", topic="t")) == (200, 3)
        assert get(port, "/ready")[0] == 404
        run.send_signal(2)
        assert run.wait(PATIENCE) == 130
        assert run.stderr.read() == ""
    finally:
        run.kill()
        run.wait()
        run.stderr.close()


def test_without_the_library(store_of_t, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    result = pylog(store_of_t, "metrics")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: metrics need prometheus_client: pip install 'pyspark-log[server]'\n",
    )


def _read_only(folder):
    """What a command begins with that may not write to a folder."""
    if os.geteuid():
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o500)
        return []
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("root may write anywhere, and this one may not mount a folder for reading only")
    mount = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"
    return ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]


def test_a_folder_that_may_not_be_written(store_of_t):
    publish_as(store_of_t, "q", 0, b"a")
    store_of_t.groups["g"].commit({TopicPartition("t", 0): 0})
    store_of_t.close()
    expected = metrics(store_of_t).values
    command = [*_read_only(store_of_t.path), sys.executable, "-m", "pyspark_log.cli.start", "metrics"]
    done = subprocess.run(
        [*command, "--store", store_of_t.path], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert Scrape(done.stdout).values == expected


def test_an_object_store_that_is_gone(object_server, object_url, monkeypatch):
    monkeypatch.setattr("pyspark_log.storage.objects.objects._RETRIES", 0)
    gone = threading.Event()
    with proxy(object_server, lambda exchange: None if gone.is_set() else pass_on(exchange)) as between:
        monkeypatch.setenv("AWS_ENDPOINT", between.endpoint)
        store = Store.create(object_url)
        current = StoreMetrics(Snapshots(store, fresh_s=0))
        assert Scrape(current.text().decode()).value("pylog_store_up") == 1
        gone.set()
        assert Scrape(current.text().decode()).values == {("pylog_store_up", frozenset()): 0}
