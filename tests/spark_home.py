"""A home for Spark whose processes start sooner: Python's by a second each, and drivers in half of the time."""

import contextlib
import os
import subprocess
import sys
import tempfile
import zlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tests.quick_java import QUICK_START, made_at_exit, quick_start

# What tests do, so that the archive has its classes; Java writes it at its end.
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("pylog").option("topic", "t").mode("append").save(f"{folder}/store")
read = {"subscribe": "t", "startingOffsets": "earliest"}
spark.read.format("pylog").options(**read).load(f"{folder}/store").groupBy("key").count().collect()
stream = spark.readStream.format("pylog").options(**read).load(f"{folder}/store").select("value").writeStream
stream = stream.format("pylog").options(topic="u", checkpointLocation=f"{folder}/checkpoint").trigger(availableNow=True)
stream.start(f"{folder}/store").awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
"""


def spark_home() -> Path | None:
    """The folder for SPARK_HOME, which is made if need be; None without PySpark.

    The home that PySpark comes with has `python/lib/pyspark.zip`, which Spark puts first on the path of each Python
    process. Nothing in it is compiled, so each process compiles what it imports. Without the file each imports the
    installed PySpark.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    installed = Path(found.origin).parent
    home = Path(tempfile.gettempdir()) / f"pylog-spark-home-{os.getuid()}-{zlib.crc32(bytes(installed)):x}"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):  # another process of the tests has created it
            (home / name).symlink_to(installed / name)
    return home


def archive() -> Path:
    """Where the classes are that a driver loads, if `archive_classes` was called once: with the jars, in the venv."""
    return Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"


def java_options() -> dict[str, str]:
    """Variables of the environment with which drivers start quickly."""
    return {"SPARK_SUBMIT_OPTS": " ".join(quick_start(archive())), "SPARK_LAUNCHER_OPTS": " ".join(QUICK_START)}


def archive_classes(home: Path) -> None:
    """Makes the archive of the classes that a driver loads; the process ends with Spark's output if it fails."""
    with tempfile.TemporaryDirectory() as folder, made_at_exit(archive()) as options:
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": " ".join(options)}
        command = [sys.executable, "-c", _PROGRAM, folder]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(done.stdout)
