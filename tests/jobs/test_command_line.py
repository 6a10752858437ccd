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

import click
import pytest
from click.testing import CliRunner
from job_tools import JOBS

from pyspark_log.cli.main import main as pylog
from pyspark_log.cli.support import json_option
from pyspark_log.errors import UnknownTopicError
from pyspark_log.jobs.support import Job, JobError, argument, run_tasks, show_summary
from tests.amounts import one_in
from tests.paths import ROOT


@pytest.fixture
def parsed():
    """The arguments that a job is run with."""
    return []


@pytest.fixture
def job(parsed):
    @click.command(cls=Job, help="A job.")
    @argument("store", help="A store.")
    @argument("topic", required=False, help="A topic.")
    @click.option("--max-size", type=int, default=7, help="A size.")
    @click.option("--name", "names", multiple=True, help="A name.")
    @click.option("--headers", is_flag=True, help="Headers.")
    @json_option
    def main(arguments):
        parsed.append(arguments)
        return True

    return main


def job_of(work):
    """A job without arguments but for --json."""
    return click.command(cls=Job, help="A job.")(json_option(work))


@pytest.fixture
def config(tmp_path):
    def write(*lines):
        (tmp_path / "job.properties").write_text("\n".join(lines))
        return ["--config", str(tmp_path / "job.properties")]

    return write


def test_arguments_of_a_file(job, parsed, config):
    given = config("# a comment", "", "store = /data/s", "max_size=3", "json=true", "headers=false", "name=a", "name=b")
    assert job(given) == 0
    assert vars(parsed[0]) == {
        "store": "/data/s", "topic": None, "max_size": 3, "as_json": True, "headers": False, "names": ("a", "b"),
    }  # fmt: skip


def test_the_call_counts_before_the_file(job, parsed, config):
    assert job([*config("store=/data/s", "max-size=-3", "name=a"), "--max-size", "5", "--name", "b"]) == 0
    assert (parsed[0].store, parsed[0].max_size, parsed[0].names) == ("/data/s", 5, ("a", "b"))


def test_arguments_without_a_name_are_in_the_file_or_in_the_call(job, parsed, config, capsys):
    assert job(["orders", *config("store=/data/s")]) == 0
    assert (parsed[0].store, parsed[0].topic) == ("/data/s", "orders")
    assert job(["/other", "orders", *config("store=/data/s")]) == 2
    assert "Got unexpected extra argument (orders)" in capsys.readouterr().err


def test_several_lines_of_an_argument_are_several_values(parsed, config):
    @click.command(cls=Job, help="A job.")
    @argument("store")
    @argument("sources", nargs=-1, required=True)
    def job(arguments):
        parsed.append(arguments.sources)
        return True

    assert job(config("store=s", "sources=/a", "sources=/b")) == 0
    assert job(["/a", "/b", *config("store=s")]) == 0
    assert job(["s", *config("sources=/a", "sources=/b")]) == 0
    assert parsed == [("/a", "/b")] * 3
    assert job(config("store=s")) == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("size=1", "line 1: there is no argument 'size'"),
        ("json=yes", "json must be true or false, not 'yes'"),
        ("max-size=x", "'x' is not a valid integer"),
        ("json", "expected name=value"),
        ("config=x", "no argument 'config'"),
    ],
)
def test_what_is_wrong_in_a_file_has_code_2(job, config, capsys, line, why):
    assert job(["s", *config(line)]) == 2
    assert why in capsys.readouterr().err


def test_a_file_that_is_missing(job, capsys):
    assert job(["s", "--config", "/nowhere"]) == 2
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
def test_exit_codes(capsys, error, code, shown):
    assert job_of(raising(error))([]) == code
    assert capsys.readouterr().err == shown


def test_more_exit_codes(capsys):
    assert job_of(lambda _: True)([]) == 0
    assert job_of(lambda _: False)([]) == 1
    assert job_of(raising(click.UsageError("which\none?")))([]) == 2
    assert capsys.readouterr().err.endswith("Error: which one?\n")


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
    code = "import sys; from pyspark_log.cli.transfer.jobs import jobs; jobs(['list'], standalone_mode=False); "
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
    assert importlib.import_module(f"pyspark_log.jobs.{name}").main(["--show-config"]) == 0
    shown = capsys.readouterr().out
    assert shown == (ROOT / "conf" / "jobs" / f"{name}.properties").read_text()
    assert "\n#store=\n" in shown


def test_a_shown_config_file_says_what_a_call_says(job, parsed, tmp_path):
    file = tmp_path / "job.properties"
    file.write_text(job.config_file().replace("#store=", "store=/data/s").replace("#max-size=7", "max-size=8"))
    assert job(["--config", str(file)]) == 0
    found = parsed[0]
    assert (found.store, found.topic, found.max_size, found.as_json) == ("/data/s", None, 8, False)


def test_with_json_nothing_else_is_printed(capfd):
    """As spark-submit prints standard error on standard output."""

    def work(arguments):
        logging.getLogger("pyspark_log.some.module").warning("there was\nno topic %s", "t")
        warnings.warn("old", stacklevel=1)
        show_summary({"rows": 1, "seconds": 0.12345}, as_json=arguments.as_json)
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert job_of(work)(["--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert (found["rows"], found["seconds"], found["warnings"][0], err) == (1, 0.123, "there was no topic t", "")
    assert "UserWarning: old" in found["warnings"][1]
    # Those of an earlier job in this process are not repeated, and afterwards warnings go where they went before.
    assert job_of(lambda _: show_summary({"rows": 0}, as_json=True) is None)(["--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"rows": 0}
    assert logging.getLogger("pyspark_log").propagate


def test_with_json_an_error_is_in_the_document(capfd):
    def work(_):
        raise JobError("lost", "PYLOG_DATA_LOSS")

    assert job_of(work)(["--json"]) == 1
    out, err = capfd.readouterr()
    assert (json.loads(out), err) == ({"error": "[PYLOG_DATA_LOSS] lost"}, "")
