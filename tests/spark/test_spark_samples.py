"""The samples of README.md and docs/ that are in Spark run; the others do in tests/unit/project/test_samples.py."""

import re
import time

import pytest
from spark_tools import all_values_in, fill

from pyspark_log import Store
from tests.paths import DOCS
from tests.samples import PARTITIONS, make_empty_world, make_world, samples

SAMPLES = {one.name: one for one in samples() if one.needs_spark}
# It has a test of its own, with an object store.
CREDENTIALS = "object-stores.md: Options and credentials"
ELSEWHERE = {
    CREDENTIALS,
    "pipelines.md: A sample",  # test_pipelines.py
    "real-time.md: A sample #2",  # tests/kafka/test_real_time.py
    "typed-topics.md: Typed topics",  # test_spark_typed.py
    "versions.md: Spark 3.5 #2",  # tests/kafka/test_server_spark.py
    *(name for name in SAMPLES if name.startswith("tutorial.md: ")),  # test_tutorial.py
    *(name for name in SAMPLES if name.startswith("tables.md: ")),  # tests/campaigns/test_tables_page.py
}


LATE = 2 * sum(number % 120 > 60 for number in range(240))  # each flight is there twice


def check_orders(_store, shown):
    assert shown.count("orders") == PARTITIONS


def check_counted(_store, shown):
    assert shown.count("flights") == PARTITIONS


def check_old_events(store, _shown):
    (batch,) = store.read("events", 0)
    assert [time.year for time in batch["timestamp"].to_pylist()] == [2013]


def check_split(store, _shown):
    assert len(all_values_in(store, "late")) == LATE
    assert sum(len(all_values_in(store, f"by-C{number}")) for number in range(3)) == 480
    assert sorted(all_values_in(store, "counts")) == ["160", "160", "160"]


def check_inserted(store, shown):
    values = all_values_in(store, "orders")
    assert values.count("v") == 1
    assert f"|{len(values):>8}|" in shown


def check_copies(store, _shown):
    copies = all_values_in(store, "copies")
    committed = store.groups["copy-flights"].committed().values()
    assert copies == all_values_in(store, "flights")
    assert sum(one.offset for one in committed) == len(copies)


def check_functions(store, shown):
    assert "|carrier|minutes|" in shown
    assert len(all_values_in(store, "notes")) == 1 + len(all_values_in(store, "flights"))


def check_replayed(store, _shown):
    assert all_values_in(store, "replayed") == all_values_in(store, "flights")


def check_fanned_out(store, _shown):
    assert [len(all_values_in(store, f"carrier-C{number}")) for number in range(3)] == [160, 160, 160]


def check_dead_letters(store, _shown):
    bad = 2 * sum(number % 120 >= 100 for number in range(240))  # each flight is there twice
    assert (len(all_values_in(store, "delays")), len(all_values_in(store, "delays-bad"))) == (480 - bad, bad)
    found = store.topic("delays-bad").read(headers=True).to_table()["headers"].to_pylist()
    assert found == [[{"key": "reason", "value": b"no such delay"}]] * bad


def check_once(store, _shown):
    assert all_values_in(store, "flights-once") == sorted(set(all_values_in(store, "flights")))


def check_typed(store, shown):
    assert "|  2|   3.0|" in shown
    assert b"\0\2" + bytes(8) in store.topic("payments").read().to_table()["value"].to_pylist()


CHECKS = {
    "recipes.md: Replay a topic into another": check_replayed,
    "recipes.md: Fan out by content": check_fanned_out,
    "recipes.md: Dead letters": check_dead_letters,
    "recipes.md: Drop duplicates": check_once,
    "cluster-of-nodes.md: How do clients and Spark use it?": check_orders,
    "kafka.md: A broker's topic as a DataFrame": check_orders,
    "from-kafka.md: How do I read it with Spark?": check_counted,
    "retention.md: Old events from Spark": check_old_events,
    "spark.md: Functions in place of options": check_functions,
    "spark.md: In SQL": check_inserted,
    "streaming.md: When a checkpoint is lost": check_copies,
    "typed-topics.md: Write": check_typed,
    "transactions.md: In Spark: one publish for all writes of a micro-batch": check_split,
}


def of(of_readme):
    names = [name for name in SAMPLES if name.startswith("README.md") == of_readme and name not in ELSEWHERE]
    return pytest.mark.parametrize("name", names)


@of(True)
def test_readme_runs_from_an_empty_folder(spark, tmp_path, capsys, name):
    """And prints what the page shows below it."""
    make_empty_world(tmp_path)
    exec(compile(SAMPLES[name].code_in(tmp_path), name, "exec"), {})
    assert SAMPLES[name].printed
    assert capsys.readouterr().out.strip() == SAMPLES[name].printed.strip()


def test_each_of_a_page_is_checked():
    assert {name for name in SAMPLES if not name.startswith("README.md")} == {*CHECKS, *ELSEWHERE}


@pytest.mark.slow
@of(False)
def test_runs(spark, tmp_path, capsys, name):
    """Against topics of six partitions, which write to topics that are made with one."""
    store = make_world(tmp_path)
    # What the pages take for granted beside a session: the reader's own data.
    given = {"spark": spark, "events": spark.sql("select 1 id, timestamp '2013-01-01 10:00:00' happened_at")}
    try:
        exec(compile(SAMPLES[name].code_in(tmp_path), name, "exec"), given)
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    CHECKS[name](Store.open(store.path), capsys.readouterr().out)


@pytest.mark.slow
def test_the_job_that_has_moved(spark, tmp_path):
    """That of the page which shows its diff; tests/unit/cli makes the same of the job before."""
    diff = re.search(r"^```diff\n(.*?)^```", (DOCS / "guides/moving-a-job.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    code = "".join(line[1:] for line in diff.splitlines(keepends=True)[3:] if line[0] != "-")
    store = make_world(tmp_path)
    for topic in ("orders", "copies", "n"):
        store.create_topic(topic, 1)
    code = code.replace("/data/store", store.path).replace('"/c"', repr(str(tmp_path / "checkpoint")))
    try:
        exec(compile(code, "job", "exec"), {"spark": spark})
        for query in spark.streams.active:
            query.processAllAvailable()  # They begin at the latest offset.
        store.topic("orders").append([{"key": "k", "value": "v"}, {"key": "k", "value": "w"}])
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    assert sorted(all_values_in(store, "copies")) == ["v", "w"]
    assert all_values_in(store, "n") == ["2"]


@pytest.mark.slow
def test_a_query_with_the_options_of_an_object_store(spark, object_server, object_url):
    """The credentials of a server in place of the page's; workers have no others."""
    store, code = Store.create(object_url), SAMPLES[CREDENTIALS].code
    store.create_topic("orders", 1)
    options = object_server.options
    for said, meant in (
        ("https://objects.example.com", options["endpoint"]),
        ("eu-west-1", options["region"]),
        ('access_key_id": "..."', f'access_key_id": "{options["access_key_id"]}"'),
        ('secret_access_key": "..."', f'secret_access_key": "{options["secret_access_key"]}"'),
        ("s3://bucket/store", object_url),
    ):
        assert said in code
        code = code.replace(said, meant)
    given = {"spark": spark}
    exec(compile(code, CREDENTIALS, "exec"), given)
    query = given["rows"].writeStream.format("memory").queryName("orders_in_objects").start()
    try:
        query.processAllAvailable()
        fill(store, "orders", ["first"])
        end = time.monotonic() + 120
        while not (found := spark.table("orders_in_objects").select("value").collect()):
            assert time.monotonic() < end, query.exception()
            query.processAllAvailable()
    finally:
        query.stop()
    assert [bytes(row.value) for row in found] == [b"first"]
