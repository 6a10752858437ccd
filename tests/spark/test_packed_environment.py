"""Machines without pyspark-log: an environment that has it is shipped with the job (docs/guides/cluster.md)."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest

from pyspark_log import Store
from tests.campaigns import spark_cluster
from tests.campaigns.spark_cluster import Cluster

ROOT = Path(__file__).parents[2]
# As it is installed: that of the other tests has no Python, which must come from somewhere.
SPARK_HOME = Path(pyspark.__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1500)]

JOB = """
import sys
from pyspark.sql import SparkSession

def place(_):
    import pyspark_log
    yield pyspark_log.__file__

spark = SparkSession.builder.getOrCreate()
rows = spark.range(1000).repartition(4).selectExpr("string(id) AS value")
rows.write.format("pylog").mode("append").option("topic", "t").save(sys.argv[1])
read = spark.readStream.format("pylog").options(subscribe="t", startingOffsets="earliest").load(sys.argv[1])
query = read.select("value").writeStream.format("pylog").options(topic="copy", checkpointLocation=sys.argv[2])
query.trigger(availableNow=True).start(sys.argv[1]).awaitTermination()
assert spark.read.format("pylog").options(subscribe="copy").load(sys.argv[1]).count() == 1000
for found in set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(place).collect()):
    print(f"imported from {found}")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with a wheel of this package and what it needs, of which nothing comes from a network."""
    folder = tmp_path_factory.mktemp("environment")
    sources = folder / "sources"
    sources.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(ROOT / "pyspark_log", sources / "pyspark_log", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    # Its speed does not matter: what comes last counts for a compiler.
    compiler = folder / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n', encoding="utf-8")
    compiler.chmod(0o755)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", sources, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder],
        env=os.environ | {"CC": str(compiler)},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"no wheel can be built here: {built.stderr[-1000:]}")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "pylog-env"], check=True)
    python = folder / "pylog-env/bin/python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (site,) = (folder / "pylog-env/lib").glob("python*/site-packages")
    (installed,) = importlib.metadata.distributions(name="pyspark-log", path=[str(site)])
    for name in needed(installed.requires, set()):
        copy_distribution(name, site)
    return folder / "pylog-env"


def needed(requires, found):
    """The names of what is needed, and of what that needs; without extras."""
    for one in requires or ():
        name = re.match(r"[\w.-]+", one)[0]
        if ";" not in one and name not in found:
            found.add(name)
            needed(importlib.metadata.requires(name), found)
    return found


def copy_distribution(name, site):
    """Copies what is installed here, without what only compilers need."""
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files:
        if ".." not in file.parts and not {"include", "tests"} & set(file.parts):
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(distribution.locate_file(file), target)


@pytest.fixture
def bare_cluster(tmp_path, monkeypatch):
    """A cluster whose Python has no pyspark-log."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = Path(sys.base_prefix, "bin", "python3")
    found = subprocess.run([python, "-c", "import pyspark_log"], cwd=tmp_path, stderr=subprocess.PIPE, check=False)
    assert b"No module named" in found.stderr
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(spark_cluster, "SPARK_HOME", SPARK_HOME)
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.stop()


def test_a_packed_environment(environment, bare_cluster, tmp_path):
    with tarfile.open(tmp_path / "pylog-env.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(environment, ".")
    store = Store.create(tmp_path / "store")
    store.create_topic("t", 3)
    tmp_path.joinpath("job.py").write_text(JOB)
    command = [
        SPARK_HOME / "bin/spark-submit", "--master", bare_cluster.master, "--archives", "pylog-env.tar.gz#environment",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
        "--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.python.authenticate.socketTimeout=120s", "job.py", store.path, tmp_path / "checkpoint",
    ]  # fmt: skip
    variables = {
        "PYSPARK_DRIVER_PYTHON": environment / "bin/python",
        "PYSPARK_PYTHON": "./environment/bin/pylog-python",
        "SPARK_HOME": SPARK_HOME,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, env=os.environ | {name: str(one) for name, one in variables.items()},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    places = re.findall(r"imported from (.*)", done.stdout)
    assert places
    assert all("/work " in one and "/environment/lib/" in one for one in places), places
