"""docs/start/tutorial.md: its steps, one after the other, in a shell; and its test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

from pyspark_log import Store
from pyspark_log.serving import serving
from tests.object_server import Versitygw
from tests.paths import DOCS, ROOT
from tests.samples import samples

pytestmark = [pytest.mark.slow, pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")]

TUTORIAL = {
    sample.name.removeprefix("tutorial.md: "): sample for sample in samples() if sample.name.startswith("tutorial.md: ")
}
TEST, OBJECTS = "6. A test with late data", "8. The same in an object store"
TEST_BODY = f"{TEST} #2"


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
    said, steps = {}, [name for name in TUTORIAL if name not in (TEST, TEST_BODY, OBJECTS)]
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
    program = (ROOT / "examples/test_late_clicks.py").read_text(encoding="utf-8")
    assert TUTORIAL[TEST_BODY].code in program
    command = TUTORIAL[TEST].code.replace("pytest ", "pytest -p no:cacheprovider ")
    assert "= 1 passed in" in run(command, tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_its_consumer_in_javascript(tmp_path):
    modules = ROOT / ".clients/js/node_modules"
    if not (modules / "kafkajs").exists():
        pytest.skip("there is no kafkajs here (make client-programs)")
    [program] = re.findall(r"```js\n(.*?)```", (DOCS / "start/tutorial.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "node_modules").symlink_to(modules)
    with Store.create(tmp_path / "store") as store:
        store.create_topic("sessions", 1)
        store.topic("sessions").append([{"value": '{"visitor":"anna"}'}])
    with serving(tmp_path / "store") as bootstrap:
        (tmp_path / "sessions.mjs").write_text(program.replace("127.0.0.1:9092", bootstrap))
        node = subprocess.Popen(
            [modules / ".bin/node", "sessions.mjs"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            # What it logs comes before.
            assert b'{"visitor":"anna"}\n' in node.stdout
        finally:
            node.kill()
            node.communicate()


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
