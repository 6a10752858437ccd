"""What is done for the processes that Spark uses for task after task."""

import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from importlib.machinery import ModuleSpec

import pyspark
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_log import DefaultSource
from pyspark_log.spark_connector import worker_process
from pyspark_log.spark_connector.options import StorePlace, WriteOptions
from pyspark_log.spark_connector.reading.task_reader import TaskPartition, read_partition
from pyspark_log.spark_connector.worker_process import spare_modules
from pyspark_log.spark_connector.writing.commit import stage
from pyspark_log.spark_connector.writing.writer import plan_write
from tests.store_tools import new_store


@pytest.fixture
def in_spark(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setattr(worker_process, "_modules", 0)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
    gc.unfreeze()


def planned(folder):
    schema = StructType([StructField("value", BinaryType())])
    return plan_write(StorePlace(f"{folder}/store"), WriteOptions.parse({"topic": "t"}), schema)


def test_the_tasks_of_a_read(in_spark):
    assert not list(read_partition(TaskPartition(())))
    assert gc.get_freeze_count()


def test_the_plan_of_a_write(in_spark, tmp_path):
    planned(tmp_path)
    assert gc.get_freeze_count()


def test_the_tasks_of_a_write(in_spark, tmp_path):
    plan, found = planned(tmp_path), []
    gc.unfreeze()
    worker_process._modules = 0

    def rows():
        found.append(gc.get_freeze_count())
        raise LookupError
        yield

    with pytest.raises(LookupError):
        stage(plan, rows())
    assert found[0]


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux has this option")
@pytest.mark.parametrize("kind", ["reader", "streamReader", "writer", "streamWriter"])
def test_what_is_sent_to_a_task_has_it_acknowledge_at_once(in_spark, tmp_path, kind):
    source = DefaultSource({"path": planned(tmp_path).store.place.path, "subscribe": "t", "topic": "t"})
    made = getattr(source, kind)(source.schema(), *([False] if "riter" in kind else []))
    sent = pickle.dumps(made)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        assert vars(pickle.loads(sent)).keys() == vars(made).keys()
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        one.sendall(b"still open")


def test_only_when_modules_were_loaded(in_spark):
    spare_modules()
    gc.unfreeze()
    spare_modules()
    assert not gc.get_freeze_count()


def test_a_program_that_calls_the_connector_is_left_alone():
    spare_modules()
    assert not gc.get_freeze_count()


def framed(data):
    return len(data).to_bytes(4, "big") + data


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="this PySpark connects by TCP alone, with a secret")
def test_the_process_of_a_query_ends_without_a_traceback_when_spark_closes_the_connection(tmp_path):
    store = new_store(tmp_path)
    source = DefaultSource({"path": store.path, "subscribe": "t"})
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # What Spark sends before it asks for offsets: no files of the session, the source, its schema, the rows of a batch.
    sent = [framed(version.encode()), framed(b""), bytes(4), framed(pickle.dumps(source))]
    sent += [framed(source.schema().json().encode()), (1000).to_bytes(4, "big")]
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{short}/socket")
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            env=os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": f"{short}/socket"},
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"".join(sent))
            answer = b""
            while len(answer) < 8:  # its process id, and that the reader is there
                answer += connection.recv(8)
        assert answer == process.pid.to_bytes(4, "big") + bytes(4)
    _, said = process.communicate()
    assert "Traceback" not in said
    assert process.returncode == 0
