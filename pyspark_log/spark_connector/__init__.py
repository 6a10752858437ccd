"""The data source `pylog`: batch and streaming reads and writes of a store from Spark."""

# The top-level `spark_connector` is a link to this folder, for readers of the code only. Importing through it would
# create every class twice, and `isinstance` would fail in ways that are hard to see.
if __name__ != "pyspark_log.spark_connector":
    raise ImportError(f"import this package as pyspark_log.spark_connector, not as {__name__}")

from pyspark_log.spark_connector.errors import show_warnings

show_warnings()
