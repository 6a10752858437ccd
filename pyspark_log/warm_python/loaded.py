"""What the warm process has loaded, and whether a new start of Python would load the same."""

from __future__ import annotations

import importlib
import os
import pkgutil
import site
import sys
import zipimport
from collections.abc import Iterator

#: What Spark's processes import, of those that plan, read and write; an older PySpark lacks some.
_MODULES = (
    "pyspark.worker",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pandas",
    "pyarrow",
    "pyspark_log.spark_connector.source",
    "pyspark_log.spark_connector.reading.batch_reader",
    "pyspark_log.spark_connector.reading.admission",
    "pyspark_log.spark_connector.reading.positioned",
    "pyspark_log.spark_connector.reading.task_reader",
    "pyspark_log.spark_connector.writing.writer",
    # Those import these when they have work to do.
    "pyspark_log.storage.record.decoding.decoder",
    "pyspark_log.storage.record.rows",
    "pyspark_log.storage.ingest.partitioner",
)


def load() -> None:
    """Imports all of them that are there."""
    for name in (*_MODULES, *_planners()):
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"{name} is not loaded: {error}", file=sys.stderr)
    _keep_directories()


def _keep_directories() -> None:
    """Has archives that are as they were keep their directories when caches are invalidated, as each child does twice.

    Python reads the archive again then, once for each of its packages that was imported.
    """
    read_again = zipimport.zipimporter.invalidate_caches
    versions = {path: _version(path) for path in filter(os.path.isfile, sys.path)}

    def invalidate_caches(self: zipimport.zipimporter) -> None:
        if _version(self.archive) != versions.get(self.archive):
            read_again(self)

    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


def _planners() -> list[str]:
    package = importlib.import_module("pyspark.sql.worker")
    return [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]


class Loaded:
    """The modules and their files, as they were when they were loaded."""

    def __init__(self) -> None:
        """Looks at them now. Call it after `load`."""
        self._files = {path: _version(path) for path in _paths()}
        tops = {name: module for name, module in sys.modules.items() if "." not in name}
        self._folders = {name: os.path.dirname(getattr(top, "__file__", None) or "") for name, top in tops.items()}

    def has_changed(self) -> bool:
        """Whether a file has changed since, or a package was installed: Python would load something else now."""
        return any(_version(path) != version for path, version in self._files.items())

    def is_hidden_in(self, folder: str) -> bool:
        """Whether Python, started in that folder, would import a module of the folder in place of one of these."""
        for entry in os.listdir(folder):
            loaded_from = self._folders.get(entry.partition(".")[0])
            if loaded_from is None or f"{loaded_from}/".startswith(f"{folder}/"):
                continue
            if entry.endswith((".py", ".so")) or os.path.exists(f"{folder}/{entry}/__init__.py"):
                return True
        return False


def _paths() -> Iterator[str]:
    """The files of all modules, all archives, and the folders into which packages are installed."""
    yield os.path.realpath(sys.executable)
    yield from site.getsitepackages()
    yield from filter(os.path.isfile, sys.path)
    for module in list(sys.modules.values()):
        loader = getattr(module, "__loader__", None)
        path = getattr(loader, "archive", None) or getattr(module, "__file__", None)
        if path:
            yield path


def _version(path: str) -> tuple[int, int, int] | None:
    """What changes with a file; None: there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
