"""`pylog-python` is as `python`, and faster: what is started in a child of the warm process, and what is not."""

import os
import pty
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest
from warm_tools import IS_WARM, LAUNCHER, PYTHON

from pyspark_log.warm_python.server import lock, remove_leftovers
from tests.waiting import wait_until

# What a process can find out about how it was started; Python is asked, too.
SEEN = """
import gc, os, resource, signal, tempfile
print(sys.argv[2:], sys.orig_argv[1:3], sys.path, sys.flags, sys.executable, sys.prefix, os.getcwd())
print(__name__, sys.modules["__main__"].__dict__ is globals(), __spec__.name, sorted(os.environ.items()))
print([(s.name, s.encoding, s.errors, s.line_buffering, s.write_through) for s in (sys.stdin, sys.stdout, sys.stderr)])
print([signal.getsignal(number) for number in signal.valid_signals()], resource.getrlimit(resource.RLIMIT_NOFILE))
print(os.umask(0), os.nice(0), gc.isenabled(), gc.get_threshold(), tempfile.gettempdir())
print(sys.stdin.read().upper(), end="")
sys.stdout.flush()
sys.stdout.buffer.write(bytes(range(256)))
print("x", file=sys.stderr)
sys.stderr.write("no end of line")
"""
# Ways to end.
ENDS = {
    "exit code": "sys.exit(7)",
    "exit text": "sys.exit('a reason')",
    "system's exit": "import os; os._exit(9)",
    "exception": "raise ValueError('a reason')",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "ended by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "at exit": "import atexit; atexit.register(print, 'bye')",
    "a thread": "import threading; threading.Timer(0.1, print, ['late']).start()",
}


def compare(warm, code, **settings):
    """Runs it by Python and by the launcher, and sees no difference."""
    plain, ours = (
        warm.run(code, "a", "", "\u00fc", python=python, text=False, **settings) for python in (PYTHON, LAUNCHER)
    )
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    # Above the last line of a traceback it is how Python has come to it.
    assert ours.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


@pytest.mark.parametrize("flags", [(), ("-u",)], ids=["", "-u"])
def test_a_start_is_as_one_of_python(warm, tmp_path, flags):
    (tmp_path / "temporary").mkdir()
    more = {"A_VARIABLE": "x=y", "PYTHON_WORKER_FACTORY_SECRET": "s", "TMPDIR": str(tmp_path / "temporary")}
    if flags:
        warm.warm_up(flags=flags)
    compare(warm, SEEN, cwd=tmp_path, input=b"some\ninput", stdin=None, flags=flags, more=more)


@pytest.mark.parametrize("code", ENDS.values(), ids=list(ENDS))
def test_an_end_is_as_one_of_python(warm, code):
    compare(warm, code)


def test_a_terminal_is_one(warm):
    """Python writes each line at once then."""
    ours, theirs = pty.openpty()
    process = warm.start("print(sys.stdout.isatty(), sys.stdout.line_buffering); input()", stdin=theirs, stdout=theirs)
    os.close(theirs)
    assert os.read(ours, 100) == b"True True\r\n"
    os.write(ours, b"\n")
    assert process.wait() == 0
    os.close(ours)


# Not signal.pause(): a signal that comes right before it is handled after it.
WAITS = "import time\nwhile True: time.sleep(0.01)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT])
def test_signals_are_passed_on(warm, number):
    process = warm.start(f"print('ready', flush=True)\n{WAITS}", stderr=subprocess.DEVNULL)
    process.stdout.readline()
    process.send_signal(number)
    assert process.wait() == (-number)
    process.stdout.close()


def test_a_handler_of_a_signal_runs(warm):
    handler = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))"
    code = f"{handler}; print('ready', flush=True)\n{WAITS}"
    with warm.start(code) as process:
        process.stdout.readline()
        process.terminate()
    assert process.returncode == 5


SAYS_ITS_PROCESS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


def test_a_launcher_that_is_killed_takes_its_child_with_it(warm):
    with warm.start(SAYS_ITS_PROCESS) as process:
        child = int(process.stdout.readline())
        process.kill()
        wait_until(lambda: not os.path.exists(f"/proc/{child}"), "the child ends")
    assert child != process.pid


def test_a_warm_process_that_is_killed_leaves_its_children(warm):
    """They end with their launchers still; and the next start is plain, and brings up the next warm process."""
    code = "import os; print(os.getpid(), flush=True); input(); print('end', flush=True)"
    with (
        warm.start(code, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as first,
        warm.start(SAYS_ITS_PROCESS, stderr=subprocess.DEVNULL) as second,
    ):
        first.stdout.readline()
        child = int(second.stdout.readline())
        warm.kill_server()
        assert first.communicate("\n") == (
            "end\n",
            "pylog-python: the warm process was killed, so the exit code of this one is unknown\n",
        )
        second.kill()
        wait_until(lambda: not os.path.exists(f"/proc/{child}"), "the child ends")
    assert (first.returncode, second.returncode) == (1, -signal.SIGKILL)
    assert not warm.is_warm()
    warm.warm_up()


def test_the_driver_of_a_write_is_found(warm, tmp_path):
    """By a child, and by one that it has forked as Spark's daemon does. Here the JVM is a shell of the name of one."""
    java = shutil.copy(os.path.realpath(shutil.which("sh")), tmp_path / "java")
    code = (
        "import os; from pyspark_log.spark_connector.writing.writer import driver_process\n"
        f"child = os.fork(); child and os.waitpid(child, 0); print(driver_process().number, {IS_WARM}, flush=True)"
    )
    command = [java, "-c", 'echo $$ True; "$@"; true', "shell", *warm.command(code)]
    done = subprocess.run(command, env=warm.variables, capture_output=True, text=True, check=True)
    assert len(set(done.stdout.splitlines())) == 1, done.stdout
    assert done.stdout.count("True") == 3


def test_numbers_by_chance_differ(warm):
    code = "import random, numpy; print(random.random(), numpy.random.random())"
    assert len({number for _ in range(2) for number in warm.run(code).stdout.split()}) == 4


def test_what_needs_a_start_of_python(warm, tmp_path):
    """Threads that a library starts as it is loaded, an inherited file, a path that the folder decides, and code."""
    sockets = warm.sockets()
    assert not warm.is_warm(more={"OMP_NUM_THREADS": "2"})
    assert warm.is_warm(more={"OMP_NUM_THREADS": "1"})
    reader, writer = os.pipe()
    assert not warm.is_warm(pass_fds=[reader])
    os.close(reader)
    os.close(writer)
    relative = {"PYTHONPATH": f"{warm.variables['PYTHONPATH']}:."}
    assert not warm.is_warm(more=relative)
    for arguments in (["-c", f"print({IS_WARM})"], ["-m", "pydoc", "pyspark.probe"], ["-E", "-m", "pyspark.probe", ""]):
        done = subprocess.run([LAUNCHER, *arguments], env=warm.variables, capture_output=True, text=True, check=False)
        plain = subprocess.run([PYTHON, *arguments], env=warm.variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert warm.sockets() == sockets  # No other warm process has come up for these.


def test_modules_in_the_folder_go_before_those_that_are_loaded(warm, tmp_path):
    (tmp_path / "json.txt").touch()
    (tmp_path / "logging").mkdir()
    assert warm.is_warm(cwd=tmp_path)
    (tmp_path / "pandas.py").write_text("mine = True\n", encoding="utf-8")
    assert warm.run("import pandas; print(pandas.mine)", cwd=tmp_path).stdout == "True\n"


def test_a_changed_module_is_noticed(warm):
    warm.change()
    code = f"import pyspark.accumulators as module; print(getattr(module, 'changed', None), {IS_WARM})"
    assert warm.run(code).stdout == "True False\n"
    warm.warm_up()
    assert warm.run(code).stdout == "True True\n"


# The names of the archives that are read when the caches are invalidated, twice; and a module that is new in one.
READS_AGAIN = """
import importlib
import first
opened = []
sys.addaudithook(lambda event, given: event == "open" and opened.append(given[0]))
importlib.invalidate_caches()
print(sys.argv[2] in opened, flush=True)
input()
importlib.invalidate_caches()
import second
print(sys.argv[2] in opened)
"""


def test_an_archive_is_read_again_when_it_has_changed(warm, tmp_path):
    """By a child that runs; and the next start is plain."""
    archive = str(tmp_path / "more.zip")
    more = {"PYTHONPATH": f"{warm.variables['PYTHONPATH']}:{archive}"}
    for name in ("first", "second"):
        with zipfile.ZipFile(archive, "a") as file:
            file.writestr(f"{name}.py", "")
        if name == "first":
            warm.warm_up(more=more)
            process = warm.start(READS_AGAIN, archive, more=more, stdin=subprocess.PIPE)
            assert process.stdout.readline() == "False\n"
    assert process.communicate("\n") == ("True\n", None)
    assert process.returncode == 0
    assert not warm.is_warm(more=more)


def test_children_of_a_warm_process_that_is_out_of_date_end_as_ever(warm):
    with warm.start("input(); sys.exit(3)", stdin=subprocess.PIPE) as process:
        wait_until(lambda: len(warm.children()) == 1, "the child runs")
        warm.change()
        assert not warm.is_warm()
        warm.warm_up()
        process.communicate("\n")
    assert process.returncode == 3


def test_other_variables_and_limits_have_a_warm_process_of_their_own(warm):
    more = {"PYTHONHASHSEED": "7"}
    assert not warm.is_warm(more=more)
    server = warm.warm_up(more=more)
    assert server != warm.server()
    code = "import os; print(hash('x'), os.getppid())"
    assert warm.run(code, more=more).stdout.split() == [
        *warm.run("print(hash('x'))", python=PYTHON, more=more).stdout.split(),
        str(server),
    ]
    os.kill(server, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_is_not_answered(warm):
    """Neither a client of another user, nor by a process of another user."""
    reached = warm.run("", python=PYTHON)
    assert reached.returncode == 0
    os.chmod(warm.runtime, 0o777)
    os.chmod(warm.folder, 0o777)
    assert not warm.is_warm(), "a folder in which others can write"
    os.chmod(warm.folder, 0o700)
    os.chown(warm.folder, 65534, 65534)
    assert not warm.is_warm(), "a folder of another user's"
    os.chown(warm.folder, 0, 0)
    assert warm.is_warm()
    assert warm.answer_to(user=65534) == b""
    assert "a process of user 65534 was not answered" in warm.said()


def test_it_goes_when_it_has_been_idle(warm, tmp_path):
    code = (
        "import runpy, sys; import pyspark_log.warm_python.server as server; server.IDLE_SECONDS = 0.01\n"
        "runpy.run_module('pyspark_log.warm_python', run_name='__main__')"
    )
    done = subprocess.run(
        [PYTHON, "-c", code, tmp_path, "a"], env=warm.variables, cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "a").exists()


def test_what_others_have_left_a_day_ago_is_removed(tmp_path):
    own, *others = (str(tmp_path / name) for name in ("own", "young", "old", "runs"))
    for path in (own, *others):
        for ending in ("", ".log", ".lock"):
            Path(path + ending).touch()
            if path not in {own, others[0]}:
                os.utime(path + ending, (0, 0))
    locked = lock(others[2])
    remove_leftovers(own)
    os.close(locked)
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"own", "young", "runs"}


def test_what_another_process_removes_meanwhile_is_no_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _: ["gone.lock"])
    remove_leftovers(str(tmp_path / "own"))


def test_there_is_one_for_a_name(warm):
    """A second one ends before it has loaded anything."""
    command = [PYTHON, "-X", "importtime", "-m", "pyspark_log.warm_python", warm.folder, warm.socket.name]
    done = subprocess.run(command, env=warm.variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "pandas" not in done.stderr
