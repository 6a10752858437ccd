"""`pylog move-job`: its diff, its notes, its exit codes, and what it writes."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main
from tests.paths import DOCS

READ = 'spark.read.format("kafka").option("kafka.bootstrap.servers", "b").load()\n'
MOVED = 'spark.read.format("pylog").option("path", "/data/store").load()\n'
UPDATE = 'df.writeStream.format("kafka").outputMode("update").start()\n'


def run(*words, store="/data/store"):
    result = CliRunner().invoke(main, ["move-job", *map(str, words), *(["--store", store] if store else [])])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(READ)
    return path


def test_a_diff_and_notes(job):
    job.write_text(f"import os\n{READ}{UPDATE}# the end")
    result = run(job)
    assert result.exit_code == 1
    assert (
        result.stdout
        == f"""\
--- {job}
+++ {job}
@@ -1,4 +1,4 @@
 import os
-{READ}-{UPDATE}+{MOVED}+df.writeStream.format("pylog").option("path", "/data/store").outputMode("update").start()
 # the end
\\ No newline at end of file
"""
    )
    assert result.stderr.startswith(f"{job}:3: to do: output mode update, which Spark refuses for a sink in Python")
    assert result.stderr.endswith("\n1 file to change, 1 file with something to do by hand\n")
    assert job.read_text().startswith(f"import os\n{READ}")


@pytest.mark.parametrize("source", [READ.encode(), b"# coding: latin-1\r\nx = '\xe9'\r\n" + READ.encode() + b"# \xe9"])
def test_the_diff_is_one_for_patch(job, source):
    job.write_bytes(source)
    shutil.copy(job, job.parent / "copy.py")
    run("--write", job.parent / "copy.py")
    subprocess.run(["patch", "--quiet", "--binary", job], input=run(job).stdout_bytes, check=True)
    assert job.read_bytes() == (job.parent / "copy.py").read_bytes() != source


def test_a_written_file_keeps_its_mode_and_its_links(job):
    job.chmod(0o775)
    (job.parent / "link.py").symlink_to("job.py")
    result = run("--write", job.parent / "link.py")
    assert (result.exit_code, result.stderr) == (0, "1 file changed\n")
    assert job.read_text() == MOVED
    assert job.stat().st_mode & 0o777 == 0o775
    assert sorted(path.name for path in job.parent.iterdir()) == ["job.py", "link.py"]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (READ, [1, 0, 0]),
        (UPDATE, [1, 1, 0]),  # After that a person has seen it.
        (MOVED, [0, 0, 0]),
        ("print()\n", [0, 0, 0]),
        ("print '", [2, 2, 2]),
    ],
)
def test_exit_codes(job, text, codes):
    """Before, at the writing, and after."""
    job.write_text(text)
    assert [run(*words, job).exit_code for words in ([], ["--write"], [])] == codes


def test_a_file_that_cannot_be_read_does_not_stop_the_others(job):
    other = job.parent / "other.py"
    other.write_bytes(b"x = 'a\n")
    result = run("--write", other, job)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{other}: Syntax Error @ 1:")
    assert job.read_text() == MOVED
    assert run(job.parent / "none.py").exit_code == 2


def test_without_a_store_a_name_is_left_to_define(job):
    result = run(job, store=None)
    assert '.option("path", PYLOG_STORE)' in result.stdout
    assert "PYLOG_STORE is where the store's path has to be" in result.stderr


def test_json(job):
    job.write_text(UPDATE)
    result = run("--json", job)
    [document] = json.loads(result.stdout)["files"]
    [note] = document.pop("notes")
    assert note["line"] == 1
    assert note["needed"]
    assert "write_stream" in note["advice"]
    assert document.pop("diff").startswith(f"--- {job}\n+++ {job}\n")
    assert document == {"file": str(job), "changed": True, "written": False, "error": None}
    assert (result.exit_code, result.stderr) == (1, "")


def test_the_page_shows_it(job, monkeypatch):
    """The whole job is in the diff."""
    page = (DOCS / "guides/moving-a-job.md").read_text()
    diff, notes = (re.search(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1] for kind in ("diff", "text"))
    lines = diff.splitlines(keepends=True)[3:]
    job.write_text("".join(line[1:] for line in lines if line[0] != "+"))
    monkeypatch.chdir(job.parent)
    result = run("./job.py")
    assert (result.stdout, result.stderr) == (diff, notes)
    assert run("--write", job.name).exit_code == 0
    assert job.read_text() == "".join(line[1:] for line in lines if line[0] != "-")


def test_what_to_install(job):
    """Where LibCST is not; all else of the command line is there."""
    code = "import sys; sys.modules['libcst'] = None; from pyspark_log.cli.start import main; main()"
    command = [sys.executable, "-c", code, "move-job", job]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "Error: move-job needs LibCST: pip install 'pyspark-log[move]'\n"
    assert done.returncode == 2
