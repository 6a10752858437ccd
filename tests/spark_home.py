"""A home for Spark whose processes start sooner: Python's by a second each, and drivers in half of the time.

`python -m tests.spark_home` makes an archive of Java's classes there, once; `make test` does so.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import zlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tests.spark.java import java_version

#: Options with which a JVM that runs for seconds costs less than half: it compiles quickly, not well.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_ARCHIVE = "classes.jsa"
# What tests do, so that the archive has its classes; Java writes it when it ends.
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
    of = f"{installed} {version('pyspark')}"
    home = Path(tempfile.gettempdir()) / f"pylog-spark-home-{os.getuid()}-{zlib.crc32(of.encode()):x}"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):  # another process of the tests has created it
            (home / name).symlink_to(installed / name)
    return home


def java_options(home: Path) -> dict[str, str]:
    """Variables of the environment with which drivers start in half of the time.

    Java maps classes from the archive, if there is one that its version and the jars still fit.
    """
    archive = f" -XX:SharedArchiveFile={home / _ARCHIVE} -Xlog:disable" if (home / _ARCHIVE).exists() else ""
    return {"SPARK_SUBMIT_OPTS": QUICK_JAVA + archive, "SPARK_LAUNCHER_OPTS": QUICK_JAVA}


def _archive_classes(home: Path) -> None:
    """Writes the classes that a driver loads into the archive; the process ends with its output if it fails."""
    with tempfile.TemporaryDirectory(dir=home) as folder:
        written = Path(folder) / _ARCHIVE
        options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        environment = os.environ | {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": options}
        command = [sys.executable, "-c", _PROGRAM, folder]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(done.stdout)
        written.rename(home / _ARCHIVE)


if __name__ == "__main__":
    ours = spark_home()
    if ours is not None and java_version() >= 17 and not (ours / _ARCHIVE).exists():
        print("Archiving Spark's classes for the tests (once; takes a minute).", flush=True)
        _archive_classes(ours)
