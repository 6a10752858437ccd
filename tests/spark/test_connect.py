"""The data source through Spark Connect, and in the shell of an activated environment."""

import importlib.util
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")]


@pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="Spark Connect needs more packages: pip install 'pyspark[connect]'"
)
def test_over_spark_connect(tmp_path):
    program = Path(__file__).with_name("over_connect.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION]" in found.pop("error")
    assert found == {
        "session": "pyspark.sql.connect.session",
        "read": 100,
        "copied": 100,
        "split": [10, 90],
        "transformed": 7,
        "order": "with Spark Connect",
    }


@pytest.mark.long
def test_in_the_shell_of_an_activated_environment(tmp_path):
    """Its `python3` is the first on the PATH, which Spark starts unless PYSPARK_PYTHON says otherwise."""
    # And with all that Spark brings, unlike tests/spark_home.py.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_HOME"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    mine, its = pty.openpty()
    shell = subprocess.Popen(
        ["pyspark", "--master", "local[1]", "--conf", "spark.ui.enabled=false"],
        stdin=its,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=tmp_path,
        text=True,
    )
    os.write(
        mine,
        b"""
spark.range(3).selectExpr("string(id) value").write.format("pylog").option("topic", "t").mode("append").save("store")
print(f'rows: {spark.read.format("pylog").option("subscribe", "t").load("store").count()}')
exit()
""",
    )
    try:
        said, _ = shell.communicate(timeout=500)
    finally:
        shell.kill()
        os.close(mine)
        os.close(its)
    assert "rows: 3" in said, said[-3000:]
