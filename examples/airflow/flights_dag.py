"""A DAG for Airflow: each hour the new records of a topic, by a job that Spark runs (docs/guides/platforms.md)."""

from datetime import datetime

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import dag


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def flights():
    SparkSubmitOperator(
        task_id="into_delta",
        application="/opt/jobs/into_delta.py",
        archives="/opt/pylog-env.tar.gz#environment",
        env_vars={"PYSPARK_DRIVER_PYTHON": "/opt/pylog-env/bin/python", "PYSPARK_PYTHON": "./environment/bin/python"},
        retries=3,
    )


flights()
