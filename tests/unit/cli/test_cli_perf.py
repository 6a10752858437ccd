"""`pylog perf`: what it writes and reads, and the numbers that it prints of it."""

from __future__ import annotations

import json

import pytest
from cli_tools import output, pylog, records

from pyspark_log.cli.producing.perf import percentiles
from tests.store_tools import store_with

store = store_with()


def test_so_many_records_of_that_size_are_written(store):
    arguments = ("perf", "produce", "t", "--num-records", "2500", "--record-size", "33", "--batch-records", "1000")
    found = json.loads(output(store, *arguments, "--compression", "lz4", "--json"))
    table = store.topic("t").read().to_table()
    assert table.num_rows == found["records"] == 2500
    assert {len(value) for value in table["value"].to_pylist()} == {33}
    assert found["records_per_second"] == pytest.approx(2500 / found["seconds"], rel=0.2, abs=1000)
    names = ["latency_ms_p50", "latency_ms_p95", "latency_ms_p99", "latency_ms_p99.9", "latency_ms_max"]
    latencies = [found[name] for name in names]
    assert latencies == sorted(latencies)
    assert latencies[0] > 0
    dumped = output(store, "dump", "--topic", "t", "--partition", "0").splitlines()[1:]
    assert len(dumped) == 3
    assert all("compresscodec: lz4 " in line for line in dumped)
    assert "2500 records sent, " in output(store, *arguments, "--sync", "--partition", "0")


def test_the_throughput_is_bounded(store):
    arguments = ("perf", "produce", "t", "--num-records", "100", "--throughput", "200", "--json")
    found = json.loads(output(store, *arguments))
    assert found["seconds"] >= 0.45
    assert found["records_per_second"] <= 223


def test_what_is_read_is_counted(store):
    store.append("t", records(["key"] * 100, [b"v" * 1021] * 100))
    found = json.loads(output(store, "perf", "consume", "t", "--json"))
    assert (found["records"], found["mib"]) == (100, round(100 * 1024 / (1 << 20), 3))
    assert json.loads(output(store, "perf", "consume", "t", "--messages", "30", "--json"))["records"] == 30
    assert output(store, "perf", "consume", "t", "--headers").startswith("100 records read, ")


def test_a_topic_that_is_not_there(store):
    for arguments in (["produce", "nothing", "--num-records", "1"], ["consume", "nothing"]):
        assert pylog(store, "perf", *arguments).exit_code == 1
    assert store.topics() == ["t"]


def test_percentiles_are_those_of_records():
    assert percentiles([5.0, 1.0, 3.0], [1, 97, 2], [50, 97, 98, 99, 99.9, 100]) == [1.0, 1.0, 3.0, 3.0, 5.0, 5.0]
    assert percentiles([7.0], [1], [50, 99.9]) == [7.0, 7.0]
