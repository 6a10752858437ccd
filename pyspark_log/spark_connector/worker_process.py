"""The Python processes that Spark uses again, task after task."""

from __future__ import annotations

import gc
import os
import sys

_modules = 0


def is_spark_process() -> bool:
    """Whether this is a process of Spark's, rather than a program that calls the connector."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def hide_traceback() -> None:
    """Makes Spark show the text of an error alone, without the lines of code that raised it.

    For an error that ends this process, as each one does that a data source raises in a process of Spark's: so it
    concerns no later error. Spark sets the same variable for `spark.sql.execution.pyspark.udf.hideTraceback.enabled`.
    """
    if is_spark_process():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def spare_modules() -> None:
    """Freezes loaded objects, so that the garbage collection which Spark runs after each task skips them.

    It looks at each object of the process: with Spark, Arrow and the engine loaded it takes three times as long as to
    read 50,000 records. To be called when a task begins. Objects that exist then, and are lost in a cycle later, stay:
    so it has an effect only in a process of Spark's, and only if modules were loaded since the last call.
    """
    global _modules  # noqa: PLW0603
    if is_spark_process() and len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()
