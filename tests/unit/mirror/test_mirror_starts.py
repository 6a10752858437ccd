"""How a mirror begins: without a broker that answers, and with topics that it refuses."""

import json
import re
import threading

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.cluster import Cluster
from pyspark_log.mirror import ClusterSource, Mirror, MirrorPlan
from pyspark_log.mirror import mirror as mirroring
from pyspark_log.storage.folder_store import FolderStore
from tests.server_tools import PATIENCE
from tests.store_tools import rows, values
from tests.waiting import wait_until


@pytest.fixture
def begun(server, tmp_path, topic, monkeypatch):
    """A mirror of a cluster that does not answer at first, and how often it was asked."""
    asked, answers, topics = [], threading.Event(), Cluster.topics

    def ask(cluster, names=None):
        asked.append(names)
        if not answers.is_set():
            raise ConnectionRefusedError("no broker answers")
        return topics(cluster, names)

    monkeypatch.setattr(Cluster, "topics", ask)
    monkeypatch.setattr(mirroring, "_METADATA_INTERVAL", 0.01)
    with (
        FolderStore.create(tmp_path / "mirror") as store,
        ClusterSource([(server.host, server.port)], ClientConfig()) as cluster,
    ):
        plans = [MirrorPlan([re.compile(topic)], until_now=until_now) for until_now in (False, True)]
        yield lambda until_now: Mirror(store, cluster, plans[until_now]), asked, answers


def test_it_waits_for_a_broker(begun, upstream, topic, tmp_path, caplog):
    make, asked, answers = begun
    upstream.append(topic, rows(b"a", b"b"), partition=1)
    running = make(False)
    thread = threading.Thread(target=running.run)
    thread.start()
    wait_until(lambda: len(asked) > 2, "it asks again")
    answers.set()
    with Store.open(tmp_path / "mirror") as store:
        wait_until(lambda: topic in store.topics() and store.latest_offset(topic, 1) == 2, "the records are there")
        running.stopping.set()
        thread.join(PATIENCE)
        assert values(store, 1, topic=topic) == [b"a", b"b"]
    assert "the source does not answer, and is asked again: no broker answers" in caplog.text


def test_it_can_be_stopped_before_a_broker_answers(begun):
    make, asked, _ = begun
    running, results = make(False), []
    thread = threading.Thread(target=lambda: results.append(running.run()))
    thread.start()
    wait_until(lambda: asked, "it asks")
    running.stopping.set()
    thread.join(PATIENCE)
    assert results == [[]]


def test_until_now_wants_an_answer(begun):
    with pytest.raises(ConnectionRefusedError):
        begun[0](True).run()


def test_a_topic_that_is_refused_is_shown_with_the_reason(server, upstream, topic, tmp_path):
    upstream.append(topic, rows(b"a"), partition=0)
    with Store.create(tmp_path / "mirror") as store:
        store.create_topic(topic, 1)
    arguments = ["--store", str(tmp_path / "mirror"), "mirror", f"kafka://{server.bootstrap}", "--until-now"]
    done = CliRunner().invoke(main, [*arguments, "--topics", topic])
    assert done.exit_code == 1
    [line] = [line for line in done.stdout.splitlines() if line.startswith(topic)]
    assert re.fullmatch(rf"{topic} +- +- +- +- +refused: .*{topic}.*", line)
    [shown] = json.loads(CliRunner().invoke(main, [*arguments, "--topics", topic, "--json"]).stdout)
    assert {name for name, value in shown.items() if value is not None} == {"topic", "error"}
