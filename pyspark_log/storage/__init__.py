"""The engine: Kafka's log in plain files, without Spark and without a server."""

import logging

# The top-level `storage` is a link to this folder, for people. Imported through it, every
# class would exist twice and `isinstance` would fail in ways that are hard to see.
if __name__ != "pyspark_log.storage":
    raise ImportError(f"import this package as pyspark_log.storage, not as {__name__}")

# A library stays quiet until its user configures logging. All that logs imports the engine.
logging.getLogger("pyspark_log").addHandler(logging.NullHandler())
