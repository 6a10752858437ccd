"""How `pylog` starts: what it loads for which command, and what Ctrl-C does meanwhile."""

import os
import random
import signal
import subprocess
import sys
import time

import click
import pyarrow as pa
import pytest

from pyspark_log.cli.main import COMMANDS, main
from tests.amounts import few_or_many
from tests.seeds import new_seed
from tests.store_tools import new_store

HEAVY = {"pyarrow", "numpy", "pandas", "pyspark", "lz4", "zstandard", "cramjam", "rich"}
# What help may need of the package, and how many modules in all; Python itself and click have some 120.
LIGHT = {
    "arguments", "cli", "cli.interrupts", "cli.kafka_spelling", "cli.main", "cli.start", "cli.support",
    "cli.support.address", "cli.support.commands", "cli.support.completion", "cli.support.confirm", "cli.support.live",
    "cli.support.output", "cli.support.progress", "cli.support.values", "cli.target", "cli.topics",
    "cli.topics.partitions", "cli.topics.topics", "config", "errors", "errors.clients",
    "errors.publishes", "errors.records", "errors.root", "errors.schemas", "errors.stores",
    "near_names", "storage", "types", "units",
}  # fmt: skip
MOST_MODULES = 220

# Begins as the installed command does. Ctrl-C comes when the module of that name is about to be loaded, or at the end.
STRUCK = """
import atexit, os, sys

class Moment:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), 2)
        if moment == "tell":
            os.write(2, name.encode() + b"\\n")

moment = sys.argv.pop(1)
if moment == "exit":
    atexit.register(os.kill, os.getpid(), 2)
sys.meta_path.insert(0, Moment())
from pyspark_log.cli.start import main
if moment == "any":
    os.write(1, b"x")
main()
"""


def loaded_by(*words):
    """The modules that a command loads, and how it ends."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from pyspark_log.cli.start import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    return set(done.stderr.splitlines()[-1].split()), done


@pytest.mark.parametrize(
    "words", [["--help"], ["topics", "--help"], ["topics", "alter", "-h"], ["--version"], ["none"], []], ids=" ".join
)
def test_help_loads_nothing_that_takes_long(words):
    modules, done = loaded_by(*words)
    assert done.returncode == (2 if words in (["none"], []) else 0)
    assert not HEAVY & {name.partition(".")[0] for name in modules}
    ours = {name.removeprefix("pyspark_log.") for name in modules if name.startswith("pyspark_log.")}
    assert {name for name in ours if not name.startswith(("storage.catalog", "storage.fs", "storage.objects"))} <= LIGHT
    assert len(modules) < MOST_MODULES


def test_the_list_of_commands_is_true():
    context = click.Context(main)
    assert main.list_commands(context) == sorted(COMMANDS)
    for name, text in COMMANDS.items():
        command = main.get_command(context, name)
        assert (command.name, command.get_short_help_str(1000)) == (name, text)
    assert main.get_command(context, "none") is None


def test_rich_is_loaded_in_a_terminal_only(path):
    """Nor Arrow for what reads no records."""
    few, many = [["offsets"], ["top", "--once", "--interval", "0.1"]], [["verify"], ["consume", "t"]]
    code = """
import sys
from pyspark_log.cli.main import main
for words in {}:
    main(["--store", sys.argv[1], *words], standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""
    for commands in (few, few + many):
        command = [sys.executable, "-c", code.format(commands), path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        modules = set(done.stderr.splitlines()[-1].split())
        assert "pyspark_log.storage.folder_store" in modules
        assert ("pyarrow" in modules) == (commands != few)
        assert "rich" not in modules


@pytest.fixture
def path(tmp_path):
    store = new_store(tmp_path)
    store.append("t", pa.record_batch({"value": [b"x"]}))
    return store.path


def command(moment, *words):
    return [sys.executable, "-c", STRUCK, moment, *words]


@pytest.mark.parametrize("steps", few_or_many(1, 12))
def test_ctrl_c_while_it_loads_is_quiet(path, steps):
    words = ["--store", path, "consume", "t"]
    told = subprocess.run(command("tell", *words), capture_output=True, check=True)
    names = [name.decode() for name in told.stderr.split()]
    names = names[names.index("pyspark_log.cli.start") + 1 :]
    ours = [name for name in names if name.startswith("pyspark_log.")]
    chosen = [names[0], *ours[: 1 + steps // 4], *ours[4 :: 144 // steps], *names[1 :: len(names) // steps]]
    for name in [*chosen, "pyarrow", "pyarrow.lib", "exit"]:
        done = subprocess.run(command(name, *words), capture_output=True, check=False)
        assert (name, done.returncode, done.stderr) == (name, 130, b"")
        assert done.stdout == (b"x\n" if name == "exit" else b"")


@pytest.mark.parametrize("times", few_or_many(1, 8))
@pytest.mark.parametrize("words", [["topics", "--help"], ["consume", "t"], ["verify"], ["produce", "t"]])
def test_ctrl_c_at_any_moment_is_quiet(path, words, times):
    moments = random.Random(seed := new_seed())
    for _ in range(times):
        run = subprocess.Popen(
            command("any", "--store", path, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert run.stdout.read(1) == b"x"
        time.sleep(moments.uniform(0, 0.8))
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
        # It may have ended before; or Python has given the signal back to the system, at the end of its own.
        assert run.returncode in (0, 130, -signal.SIGINT), (seed, err)
        assert err == b"", seed


@pytest.mark.slow
def test_where_ctrl_c_is_ignored_it_stays_so(path):
    """As for a command that a script has started in the background."""
    words = ["--store", path, "consume", "t"]
    for moment in ("click", "pyarrow", "exit"):
        done = subprocess.run(
            command(moment, *words),
            capture_output=True,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"x\n", b"")


def test_importing_the_commands_leaves_ctrl_c_alone():
    code = "import signal, pyspark_log.cli.main; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "True\n"
