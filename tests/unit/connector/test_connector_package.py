"""The package's public names, and what importing it costs."""

import subprocess
import sys

import pytest

import pyspark_log
from pyspark_log.errors import UnknownTopicError
from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown

# What Spark's processes need of the engine that find the data source and make it: names and checks.
LIGHT = ("pyspark_log.storage.catalog", "pyspark_log.storage.fs", "pyspark_log.storage.objects")


def loaded_by(code, before=""):
    """The modules that a piece of code loads which another piece has not loaded."""
    script = f"import sys\n{before}\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_else():
    # Spark imports every module named pyspark_* when it searches for data sources.
    assert loaded_by("import pyspark_log") == {"__future__", "pyspark_log"}


@pytest.mark.parametrize(
    ("worker", "code"),
    [
        ("lookup_data_sources", "source.name()"),
        ("create_data_source", "source({'path': '/a', 'subscribe': 't'}).schema()"),
    ],
)
def test_finding_and_making_the_source_loads_no_engine(worker, code):
    """Spark starts a process for each; other queries wait meanwhile."""
    loaded = loaded_by(
        f"import pyspark_log; source = pyspark_log.DefaultSource; {code}", f"import pyspark.sql.worker.{worker}"
    )
    heavy = {"pyarrow", "numpy", "pandas", "lz4", "zstandard", "cramjam", "crc32c"}
    assert not {name.partition(".")[0] for name in loaded} & heavy
    engine = {name for name in loaded if name.startswith("pyspark_log.storage.")}
    assert all(name.startswith(LIGHT) for name in engine)
    # The standard library's modules are left out: Spark's own processes load more or less of them by its version.
    assert len([name for name in loaded if name.startswith("pyspark_log")]) < 58


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("reader", {"stream_reader", "writer", "commit", "publish_together"}),
        ("streamReader", {"writer", "commit", "publish_together"}),
    ],
)
def test_readers_load_no_writers(kind, others):
    loaded = loaded_by(
        "import pyspark_log; source = pyspark_log.DefaultSource({'path': '/a', 'subscribe': 't'}); "
        f"source.{kind}(source.schema())",
        "import pyspark.sql.worker.plan_data_source_read",
    )
    assert not loaded & {f"pyspark_log.spark_connector.{name}" for name in others}


def test_reads_commits_and_publishes_load_no_pandas(tmp_path):
    """Nor may pyarrow do it for them: a streaming query starts a process that commits, and waits for its imports."""
    path = str(tmp_path / "store")
    loaded = loaded_by(
        f"store = Store.create({path!r}); store.create_topic('t', 1); at = TopicPartition('t', 0)\n"
        "OffsetsLog(store).commit('g', {at: 0})\n"
        "with Transactions(store, 'id').begin() as one: one.append('t', data)\n"
        "assert sum(batch.num_rows for batch in store.read('t', 0)) == 3",
        "import pyarrow\ndata = pyarrow.RecordBatch.from_arrays([pyarrow.nulls(3, pyarrow.binary())], ['value'])\n"
        "from pyspark_log import OffsetsLog, Store, TopicPartition, Transactions",
    )
    assert "pandas" not in loaded


def test_public_names():
    assert {"DefaultSource", "Publish", "Store", "Transactions"} < set(pyspark_log.__all__) <= set(dir(pyspark_log))
    assert all(getattr(pyspark_log, name) for name in pyspark_log.__all__)
    assert pyspark_log.DefaultSource.name() == "pylog"
    assert pyspark_log.Store.__name__ == "Store"
    with pytest.raises(AttributeError, match="no attribute 'Sotre'"):
        pyspark_log.Sotre  # noqa: B018


def test_an_engine_error_gets_its_condition_in_front():
    with pytest.raises(ConnectorError, match=r"^\[PYLOG_UNKNOWN_TOPIC_OR_PARTITION\] no t$"), conditions_shown():
        raise UnknownTopicError("no t")


def test_so_does_an_error_of_the_system(tmp_path):
    with pytest.raises(ConnectorError, match=r"^\[PYLOG_IO_ERROR\] .*No such file.*missing"), conditions_shown():
        (tmp_path / "missing").read_bytes()
