from pyspark_log.spark_connector.abilities import HAS_ADMISSION

# They ask a reader as Spark does that has admission control. test_connector_positioned.py is about the other one.
OF_ADMISSION = ["identity", "stream_reader", "topic_changes", "trigger_limits"]
collect_ignore = [] if HAS_ADMISSION else [f"test_connector_{name}.py" for name in OF_ADMISSION]
