"""A job that was written for Kafka, tested without a broker and without containers.

    python -m pytest examples/test_without_kafka.py

pytest.ini names our plugin here; the conftest.py of your tests has `pytest_plugins = ["pyspark_log.pytest_plugin"]`.
`revenue` is the job. In production it runs with `format("kafka")`; the test gives it `format("pylog")` and a folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_session import start_spark

from pyspark_log import Store


def revenue(spark: SparkSession, source: str, options: Mapping[str, str]) -> DataFrame:
    """The sum of the orders of each customer; `source` and `options` say where the orders are."""
    orders = spark.read.format(source).options(**options).option("subscribe", "orders").load()
    return (
        orders.selectExpr("string(key) AS customer", "from_json(string(value), 'amount DOUBLE').amount AS amount")
        .groupBy("customer")
        .sum("amount")
        .orderBy("customer")
    )


# In production: revenue(spark, "kafka", {"kafka.bootstrap.servers": "broker:9092"})


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark("test-without-kafka")
    yield session
    session.stop()


@pytest.mark.pylog_topic("orders", partitions=3)
def test_revenue_is_summed_by_customer(spark: SparkSession, pylog_store: Store) -> None:
    pylog_store.topic("orders").append(
        [
            {"key": "anna", "value": '{"amount": 5.5}'},
            {"key": "ben", "value": '{"amount": 1}'},
            {"key": "anna", "value": '{"amount": 7}'},
        ]
    )
    found = revenue(spark, "pylog", {"path": str(pylog_store.path)})
    assert [tuple(row) for row in found.collect()] == [("anna", 12.5), ("ben", 1.0)]


if __name__ == "__main__":
    raise SystemExit(pytest.main(["-p", "pyspark_log.pytest_plugin", __file__]))
