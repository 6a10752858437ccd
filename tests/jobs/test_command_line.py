"""`pyspark_log/jobs/support`: arguments, also from a file, exit codes, what tasks raise; and `pylog jobs`."""

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner
from job_tools import JOBS

from pyspark_log.cli.main import main as pylog
from pyspark_log.errors import UnknownTopicError
from pyspark_log.jobs.support import CallError, JobError, JobParser, run, run_tasks, show_summary
from tests.amounts import one_in
from tests.paths import ROOT


@pytest.fixture
def parser():
    parser = JobParser("A job.")
    parser.add_argument("store")
    parser.add_argument("topic", nargs="?")
    parser.add_argument("--max-size", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--headers", action="store_true")
    return parser


@pytest.fixture
def config(tmp_path):
    def write(*lines):
        (tmp_path / "job.properties").write_text("\n".join(lines))
        return ["--config", str(tmp_path / "job.properties")]

    return write


def test_arguments_of_a_file(parser, config):
    given = config("# a comment", "", "store = /data/s", "max-size=3", "json=true", "headers=false")
    found = vars(parser.parse(given))
    del found["config"]
    assert found == {"store": "/data/s", "topic": None, "max_size": 3, "json": True, "headers": False}


def test_the_call_counts_before_the_file(parser, config):
    found = parser.parse([*config("store=/data/s", "max-size=-3"), "--max-size", "5"])
    assert (found.store, found.max_size) == ("/data/s", 5)


def test_arguments_without_a_name_are_in_the_file_or_in_the_call(parser, config, capsys):
    found = parser.parse(["orders", *config("store=/data/s")])
    assert (found.store, found.topic) == ("/data/s", "orders")
    with pytest.raises(SystemExit):
        parser.parse(["/other", "orders", *config("store=/data/s")])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_several_lines_of_an_argument_are_several_values(config):
    parser = JobParser("A job.")
    parser.add_argument("store")
    parser.add_argument("sources", nargs="+")
    assert parser.parse(config("store=s", "sources=/a", "sources=/b")).sources == ["/a", "/b"]
    again = JobParser("A job.")
    again.add_argument("store")
    again.add_argument("sources", nargs="+")
    assert again.parse(["/a", "/b", *config("store=s")]).sources == ["/a", "/b"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("size=1", "line 1: there is no argument 'size'"),
        ("json=yes", "json must be true or false, not 'yes'"),
        ("max-size=x", "invalid int value"),
        ("json", "expected name=value"),
        ("config=x", "no argument 'config'"),
    ],
)
def test_what_is_wrong_in_a_file_has_code_2(parser, config, capsys, line, why):
    with pytest.raises(SystemExit) as ended:
        parser.parse(["s", *config(line)])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_file_that_is_missing(parser, capsys):
    with pytest.raises(SystemExit) as ended:
        parser.parse(["s", "--config", "/nowhere"])
    assert ended.value.code == 2
    assert "/nowhere cannot be read" in capsys.readouterr().err


def raising(error):
    def work(_):
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (UnknownTopicError("no\nsuch topic"), 1, "Error: [PYLOG_UNKNOWN_TOPIC_OR_PARTITION] no such topic\n"),
        (JobError("lost", "PYLOG_DATA_LOSS"), 1, "Error: [PYLOG_DATA_LOSS] lost\n"),
        (OSError(28, "full"), 1, "Error: [Errno 28] full\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes(parser, capsys, error, code, shown):
    assert run(parser, raising(error), ["s"]) == code
    assert capsys.readouterr().err == shown


def test_more_exit_codes(parser, capsys):
    assert run(parser, lambda _: True, ["s"]) == 0
    assert run(parser, lambda _: False, ["s"]) == 1
    with pytest.raises(SystemExit) as ended:
        run(parser, raising(CallError("which?")), ["s"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: which?\n")


# ---- tasks


def test_an_interrupt_cancels_the_tasks(spark, tmp_path):
    """It comes while the job asks Spark how far its tasks are, over and over."""
    begun = tmp_path / "begun"

    def task(_):
        begun.touch()
        time.sleep(600)

    def interrupt():
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        run_tasks(spark, "sleeps", task, [1])
    interrupting.join()
    assert run_tasks(spark, "squares", lambda number: number * number, [5]) == [25]


def test_results_are_in_the_order_of_tasks(spark):
    assert run_tasks(spark, "squares", lambda number: number * number, [5, 1, 4]) == [25, 1, 16]
    assert run_tasks(spark, "nothing", lambda number: number, []) == []


@pytest.mark.parametrize(
    ("error", "condition", "text"),
    [
        (JobError("two is bad", "PYLOG_BAD_VALUE"), "PYLOG_BAD_VALUE", "two is bad"),
        (OSError(28, "full"), "PYLOG_IO_ERROR", "[Errno 28] full"),
        (ValueError("no error\nof the engine"), "PYLOG_JOB", "of the engine"),
    ],
)
def test_what_a_task_raises(spark, error, condition, text):
    def fail(number):
        if number == 2:
            raise error
        return number

    with pytest.raises(JobError) as raised:
        run_tasks(spark, "fails", fail, [1, 2, 3])
    assert (raised.value.condition, raised.value.message) == (condition, text)


# ---- pylog jobs


def test_the_jobs_are_listed():
    shown = CliRunner().invoke(pylog, ["jobs", "list", "--json"]).stdout
    listed = {one["name"]: one["what"] for one in json.loads(shown)}
    assert set(listed) == {path.stem for path in JOBS.glob("*.py") if not path.stem.startswith("_")}
    assert all(listed.values())


def test_the_path_of_a_job():
    assert Path(CliRunner().invoke(pylog, ["jobs", "path", "compact"]).stdout.strip()) == JOBS / "compact.py"
    wrong = CliRunner().invoke(pylog, ["jobs", "path", "nothing"])
    assert wrong.exit_code == 2
    assert "There is no job 'nothing'; there are: bulk_load, " in wrong.stderr


def test_neither_needs_pyspark():
    code = "import sys; from pyspark_log.cli.maintenance.jobs import jobs; jobs(['list'], standalone_mode=False); "
    code += "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("job", one_in(4, [path for path in sorted(JOBS.glob("*.py")) if path.stem[0] != "_"]))
def test_each_job_is_a_file_with_help(job):
    done = subprocess.run([sys.executable, job, "--help"], capture_output=True, text=True, check=True)
    assert "--config FILE" in done.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in JOBS.glob("*.py") if not path.stem.startswith("_")))
def test_the_config_file_of_a_job_is_in_conf(name, capsys):
    """Written by: for job in ...; python -m pyspark_log.jobs.JOB --show-config > conf/jobs/JOB.properties."""
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"pyspark_log.jobs.{name}").main(["--show-config"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert shown == (ROOT / "conf" / "jobs" / f"{name}.properties").read_text()
    assert "\n#store=\n" in shown


def test_a_shown_config_file_says_what_a_call_says(parser, tmp_path):
    file = tmp_path / "job.properties"
    file.write_text(parser.config_file().replace("#store=", "store=/data/s").replace("#max-size=7", "max-size=8"))
    found = parser.parse(["--config", str(file)])
    assert (found.store, found.topic, found.max_size, found.json) == ("/data/s", None, 8, False)


def test_with_json_nothing_else_is_printed(capfd):
    """As spark-submit prints standard error on standard output."""

    def work(arguments):
        logging.getLogger("pyspark_log.some.module").warning("there was\nno topic %s", "t")
        warnings.warn("old", stacklevel=1)
        show_summary({"rows": 1, "seconds": 0.12345}, as_json=arguments.json)
        return True

    parser = JobParser("A job.")
    parser.add_argument("--json", action="store_true")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(parser, work, ["--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert (found["rows"], found["seconds"], found["warnings"][0], err) == (1, 0.123, "there was no topic t", "")
    assert "UserWarning: old" in found["warnings"][1]
    # Those of an earlier job in this process are not repeated, and afterwards warnings go where they went before.
    assert run(parser, lambda _: show_summary({"rows": 0}, as_json=True) is None, ["--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"rows": 0}
    assert logging.getLogger("pyspark_log").propagate


def test_with_json_an_error_is_in_the_document(capfd):
    def work(_):
        raise JobError("lost", "PYLOG_DATA_LOSS")

    parser = JobParser("A job.")
    parser.add_argument("--json", action="store_true")
    assert run(parser, work, ["--json"]) == 1
    out, err = capfd.readouterr()
    assert (json.loads(out), err) == ({"error": "[PYLOG_DATA_LOSS] lost"}, "")
