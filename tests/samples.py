"""The samples of README.md and docs/, which the tests run: without Spark in tests/unit, with it in tests/spark.

A sample means the folders `/data` and so on of its reader; here they are in a folder of the test's. The samples of the
README begin with nothing. The store of those in docs/ has what the pages speak of: the topics `flights` and `orders`,
groups and a publisher.
"""

import re
import shutil
from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_log import OffsetsLog, Store, TopicPartition
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from tests.paths import DOCS, PAGES, ROOT

READ = [ROOT / "README.md", *(page for page in PAGES if page != DOCS / "README.md")]

_LANGUAGES = ("sh", "console", "python")
_FENCE = re.compile(r" *```(\w*)")
_FOLDERS = re.compile(r"(?<![\w./])/(?=(?:data|disk2|tmp|var)\b)")
PARTITIONS = 6


@dataclass(frozen=True)
class Sample:
    """A block of code of a page.

    Attributes:
        name: of the page and the heading that it is under; with a number if there are several.
        language: sh, console or python.
        code: its lines.
        printed: what the page says that it prints: the block of `text` after it; empty if there is none.
    """

    name: str
    language: str
    code: str
    printed: str = ""

    @property
    def needs_spark(self):
        return self.language == "python" and re.search(r"\bspark\b|[Ss]tream\.|\.write\.", self.code) is not None

    def code_in(self, folder):
        """Its code, with the reader's folders in `folder`."""
        return _FOLDERS.sub(f"{folder}/", self.code)


def samples():
    """Those of all pages."""
    found = {}
    for page in READ:
        heading, language, lines, name = "", None, [], ""
        for line in page.read_text().splitlines():
            fence = _FENCE.match(line)
            if fence and language is None:
                language, lines = fence[1], []
            elif fence:
                if language in _LANGUAGES:
                    name = f"{page.name}: {heading}"
                    number = sum(other.partition(" #")[0] == name for other in found) + 1
                    name = name if number == 1 else f"{name} #{number}"
                    found[name] = Sample(name, language, "\n".join(lines) + "\n")
                elif language == "text" and name:
                    found[name] = replace(found[name], printed="\n".join(lines) + "\n")
                language = None
            elif language is not None:
                lines.append(line)
            elif line.startswith("#"):
                heading, name = line.lstrip("# "), ""
    return list(found.values())


def make_empty_world(folder):
    """A reader's machine with nothing on it but a folder for temporary files."""
    (folder / "tmp").mkdir()


def make_world(folder):
    """The reader's folders; returns the store in `/data/store`."""
    for name in ("data", "var/lib", "disk2"):
        (folder / name).mkdir(parents=True)
    store = Store.create(folder / "data/store")
    store.create_topic("flights", PARTITIONS)
    store.append("flights", _flights())
    log = OffsetsLog(store)
    for group in ("delays", "delays-by-carrier"):
        log.commit(group, {TopicPartition("flights", number): 1 for number in range(PARTITIONS)})
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["flights"]))
    writer.append("flights", _flights())
    store.publishes.publish("spark-QUERY-ID", 0, writer.finish())
    _make_brokers_folder(folder)
    return store


def _make_brokers_folder(folder):
    other = Store.create(folder / "other")
    other.create_topic("orders", PARTITIONS)
    for partition in range(PARTITIONS):
        other.append("orders", pa.record_batch({"value": ["order"]}), partition=partition)
    other.groups["billing"].commit({TopicPartition("orders", 0): 1})
    other.close()
    shutil.copytree(folder / "other", folder / "data/cluster/node-1")
    (folder / "var/lib/kafka").mkdir()
    shutil.copytree(folder / "other/data", folder / "var/lib/kafka/data")
    (folder / "var/lib/kafka/data/replication-offset-checkpoint").unlink(missing_ok=True)


def _flights():
    values = [f'{{"carrier": "C{number % 3}", "dep_delay": {number % 120}}}' for number in range(240)]
    return pa.record_batch({"key": [f"N{number % 40}" for number in range(240)], "value": values})
