"""A Spark standalone cluster on the loopback interface, of processes made from PySpark's own jars."""

import contextlib
import http
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from tests.campaigns.processes import send, session
from tests.ports import HOST, free_ports
from tests.quick_java import QUICK_START

SPARK_HOME = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
#: How long master and workers may take to find each other, in seconds.
PATIENCE = 120


def java():
    """The java that PySpark starts."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


class Cluster:
    """A master and workers, each in a session of its own; all end with `stop`.

    Attributes:
        master: the URL for Spark's `master`.
        workers: the processes of the workers, whose children are the executors.
    """

    def __init__(self, folder, workers=2, cores=1, memory="600m"):
        """Starts them and waits until all workers have registered; `cores` and `memory` are what each worker gives."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._page, port, *ports = free_ports(2 + 2 * workers)
        self.master = f"spark://{HOST}:{port}"
        self.workers = []
        self._master = self._start("master.Master", "--host", HOST, "--port", port, "--webui-port", self._page)
        try:
            self._wait_for_workers(0)
            for number in range(workers):
                # Hosts of their own, since Spark starts no second attempt of a task on the host of the first.
                self.workers.append(self._start(
                    "worker.Worker", "--host", f"127.0.0.{number + 1}", "--port", ports[2 * number],
                    "--webui-port", ports[2 * number + 1], "--cores", cores, "--memory", memory,
                    "--work-dir", self._folder / f"work {number}", self.master,
                ))  # fmt: skip
            self._wait_for_workers(workers)
        except BaseException:
            self.stop()
            raise

    def _start(self, name, *arguments):
        small = ("-Xmx160m", *QUICK_START)
        (core,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
        environment = os.environ | {
            # A worker asks for it when it starts an executor.
            "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0],
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._folder / "log").open("a") as log:
            return subprocess.Popen(
                [java(), *small, "-cp", f"{SPARK_HOME}/jars/*", f"org.apache.spark.deploy.{name}",
                 *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip

    def _wait_for_workers(self, count):
        deadline = time.monotonic() + PATIENCE
        while self._workers_alive() < count:
            if time.monotonic() > deadline or any(one.poll() is not None for one in (self._master, *self.workers)):
                raise RuntimeError("the cluster did not come up:\n" + (self._folder / "log").read_text()[-3000:])
            time.sleep(0.1)

    def _workers_alive(self):
        """What the master's page says; -1 while there is none.

        Its server answers before it has that page: at first nothing is found, then it is the page in HTML for a while.
        """
        page = http.client.HTTPConnection(HOST, self._page, timeout=120)
        with contextlib.closing(page):
            try:
                page.request("GET", "/json/")
                answer = page.getresponse()
                is_there = answer.status == http.HTTPStatus.OK and "json" in answer.headers.get_content_type()
                return json.load(answer)["aliveworkers"] if is_there else -1
            except OSError:
                return -1

    def stop(self):
        """Ends all of it, with what its workers have started."""
        for process in (*self.workers, self._master):
            # Not gently: a worker would wait for its executors. These are in its session.
            send(session(process.pid), signal.SIGKILL)
            process.wait()
