"""What is done for the processes that Spark uses for task after task."""

import gc
import sys
from importlib.machinery import ModuleSpec

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_log.spark_connector import worker_process
from pyspark_log.spark_connector.options import WriteOptions
from pyspark_log.spark_connector.task_reader import TaskPartition, read_partition
from pyspark_log.spark_connector.task_writer import stage
from pyspark_log.spark_connector.worker_process import spare_modules
from pyspark_log.spark_connector.writer import plan_write


@pytest.fixture
def in_spark(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setattr(worker_process, "_modules", 0)
    yield
    gc.unfreeze()


def planned(folder):
    schema = StructType([StructField("value", BinaryType())])
    return plan_write(f"{folder}/store", WriteOptions.parse({"topic": "t"}), schema)


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


def test_only_when_modules_were_loaded(in_spark):
    spare_modules()
    gc.unfreeze()
    spare_modules()
    assert not gc.get_freeze_count()


def test_a_program_that_calls_the_connector_is_left_alone():
    spare_modules()
    assert not gc.get_freeze_count()
