"""Runs of Spark's declarative pipelines, each in processes of its own.

The files of a pipeline are those of the sample in docs/guides/pipelines.md; a test may change what they say.
"""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.campaigns import processes
from tests.paths import ROOT
from tests.waiting import PATIENCE, wait_until

PAGE = (ROOT / "docs/guides/pipelines.md").read_text()
COMMAND = [str(Path(pyspark.__file__).parent / "bin/spark-pipelines"), "run"]


def files_of_the_page():
    """The text of each file of the sample, by its path in the pipeline's folder."""
    return dict(re.findall(r"^`/data/pipeline/([\w./-]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


class Pipeline:
    """The folder of a pipeline with its spec, definitions, settings, checkpoints, tables and catalog.

    Attributes:
        folder: where it is.
        settings: the file with the settings of Spark.
    """

    def __init__(self, data, settings=(), **replaced):
        """`data`: the folder for the page's /data. `settings`: more of Spark's. `replaced`: other texts, by path."""
        self.folder = data / "pipeline"
        self.settings = self.folder / "conf/spark-defaults.conf"
        for path, text in (files_of_the_page() | replaced).items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("/data/", f"{data}/"))
        with self.settings.open("a") as file:
            file.writelines(f"{setting}\n" for setting in ("spark.ui.enabled false", *settings))

    def start(self, *arguments):
        """A process of its own session, whose output is in the file `log` of the folder."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(self.settings.parent),
            # Spark Connect's port is a free one then: another run may be there at the same time.
            "SPARK_TESTING": "1",
        }
        with (self.folder / "log").open("w") as log:
            return subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, *arguments, fails=False):
        """Runs it to the end, which is an error if `fails`; returns what it said."""
        process, log, size = self.start(*arguments), self.folder / "log", -1
        try:
            # A run has a minute of work for one processor. One that has said nothing for so long hangs.
            while (code := process.poll()) is None:
                before, size = size, log.stat().st_size
                assert size > before, log.read_text()[-5000:]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
        finally:
            processes.end_session(process)
        said = log.read_text()
        assert (code != 0) is fails, said[-5000:]
        return said

    def kill_after(self, micro_batches):
        """Starts a run, and kills all its processes once its flows have committed that many micro-batches."""
        goal, process = self._commits() + micro_batches, self.start()
        try:
            wait_until(lambda: process.poll() is not None or self._commits() >= goal, "more micro-batches")
            assert process.poll() is None, (self.folder / "log").read_text()[-5000:]
        finally:
            processes.end_session(process)

    def checkpoints(self, flow):
        """The folders of a flow's checkpoints, by number."""
        folders = (self.folder / "checkpoints/_checkpoints").rglob(f"{flow}/*/commits")
        return [commits.parent for commits in sorted(folders, key=lambda commits: int(commits.parent.name))]

    def _commits(self):
        folders = (self.folder / "checkpoints").rglob("commits")
        return sum(name.isdigit() for folder in folders for name in os.listdir(folder))

    def rows(self, spark, table):
        """The rows of a table as tuples, sorted, as Spark's own list of its files says."""
        return sorted(map(tuple, spark.read.parquet(str(self.folder / "tables" / table)).collect()))
