"""A home for Spark whose Python processes start a second sooner each."""

import contextlib
import os
import tempfile
import zlib
from importlib.util import find_spec
from pathlib import Path


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
