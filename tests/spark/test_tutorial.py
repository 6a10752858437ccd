"""docs/start/tutorial.md: its steps, one after the other, in a shell; and its test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

from tests.object_server import Versitygw
from tests.paths import ROOT
from tests.samples import samples

pytestmark = [pytest.mark.slow, pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")]

TUTORIAL = {
    sample.name.removeprefix("tutorial.md: "): sample for sample in samples() if sample.name.startswith("tutorial.md: ")
}
TEST, OBJECTS = "6. A test with late data", "8. The same in an object store"


def run(code, folder, interpreter="bash", **environment):
    """What some code prints in the clone, with the reader's folders in `folder`."""
    (folder / "tmp").mkdir(exist_ok=True)
    command = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[interpreter]
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*command, code], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_steps(tmp_path):
    begin = next(iter(TUTORIAL.values())).code.replace("$PWD/.venv/bin:", "")
    said, steps = {}, [name for name in TUTORIAL if name not in (TEST, OBJECTS)]
    for name in steps[1:]:
        step = TUTORIAL[name]
        code = step.code if step.language == "python" else f"export STORE=/tmp/clicks\n{step.code}"
        if name == steps[1]:
            code = f"{begin}{step.code}"
        interpreter = "python" if step.language == "python" else "bash"
        said[name] = run(step_in(code, tmp_path), tmp_path, interpreter)
        assert step.printed in said[name]
    assert "clicks; the topic has 20,000" in said["1. Records in"]
    before, after = (said[f"2. A query, and a kill{number}"] for number in ("", " #2"))
    assert lags(after) == [0, 0, 0, 0]
    assert not before or sum(lags(before)) > 0
    assert '"device":"phone"' in said["4. A new field"]
    sizes = [line.split() for line in said["5. After a bug: replay"].splitlines()]
    records = {topic: sum(int(size[4]) for size in sizes if size[0] == topic) for topic in ("sessions", "sessions-2")}
    assert records["sessions"] == records["sessions-2"] > 4_000


def step_in(code, folder):
    return code.replace("/tmp/", f"{folder}/tmp/")


def lags(described):
    return [int(line.split()[5]) for line in described.splitlines() if line.startswith("click-sessions ")]


def test_its_test(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pyspark_log.pytest_plugin"]\n')
    (tmp_path / "test_it.py").write_text(TUTORIAL[TEST].code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert "= 1 passed in" in done.stdout, done.stdout + done.stderr


def test_the_same_in_an_object_store(tmp_path):
    server = Versitygw(tmp_path)
    server.start()
    try:
        # The exports of the page are for the server of `make object-server`.
        _, _, work = TUTORIAL[OBJECTS].code.split("\n", 2)
        said = run(step_in(work, tmp_path), tmp_path, **server.environment, STORE=f"s3://{server.bucket}/clicks")
    finally:
        server.kill()
    assert sum(int(line.split()[4]) for line in said.splitlines() if line.startswith("sessions ")) > 4_000
