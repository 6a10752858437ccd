"""What commands do in a terminal: questions, progress bars, colours, live views; and what they do without one."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest
from cli_tools import output, pylog, records

from pyspark_log.cli.support.output import table_text
from pyspark_log.cli.support.progress import ProgressBar
from pyspark_log.cli.topics.top import GroupSnapshot, Snapshot, TopicSnapshot, View
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance.doctor import examination
from pyspark_log.types import TopicPartition
from tests.forked import ForkedPylog
from tests.store_tools import new_store

PATIENCE = 120
SECONDS_TO_END = 30
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def store(tmp_path):
    store = new_store(tmp_path, {"retention.ms": "-1"}, partitions=2)
    store.append("t", records(["a", "b"], [b"1", b"2"]), partition=0)
    OffsetsLog(store).commit("g", {TopicPartition("t", 0): 1})
    return store


def wait_until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s"
        time.sleep(0.005)


class Terminal:
    """A command that runs in a terminal.

    Attributes:
        shown: what it has shown so far.
        restored: whether it has left a terminal that shows what is typed, line by line.
    """

    def __init__(self, store, *arguments, has_keyboard=True, program=None, **environment):
        self._end, other = pty.openpty()
        environment = {"PYLOG_STORE": store.path, "TERM": "xterm", "COLUMNS": "200", **environment}
        with open(other, "r+b", buffering=0) as terminal:
            if program is None:
                keyboard = terminal if has_keyboard else None
                self._run = ForkedPylog(arguments, terminal, terminal, stdin=keyboard, **environment)
            else:
                self._run = subprocess.Popen(
                    [sys.executable, *program, *arguments], stdin=terminal, stdout=terminal, stderr=terminal,
                    env={**os.environ, **environment}, start_new_session=True,
                )  # fmt: skip
        self.shown, self._decoder = "", codecs.getincrementaldecoder("utf-8")()

    def wait_for(self, text):
        """Reads until that is shown."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            assert self._read(PATIENCE), f"{text!r} never came: {self.shown}"
        return self

    def type(self, text):
        os.write(self._end, text.encode())
        return self

    def interrupt(self):
        """Its exit code after Ctrl+C.

        It is sent when the command sleeps, and again when nothing follows: Python sees a signal that arrives just
        before a read only after the read.
        """
        state = Path(f"/proc/{self._run.pid}/stat")
        wait_until(lambda: state.read_text(encoding="ascii").rpartition(") ")[2].startswith("S"))
        for _ in range(PATIENCE // SECONDS_TO_END):
            self._run.send_signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                return self.end(SECONDS_TO_END)
        raise TimeoutError(self.shown)

    def end(self, patience=PATIENCE):
        """Its exit code, once it has ended."""
        while self._read(patience):
            pass
        flags = termios.tcgetattr(self._end)[3]
        self.restored = bool(flags & termios.ECHO and flags & termios.ICANON)
        os.close(self._end)
        return self._run.wait(PATIENCE)

    def _read(self, patience):
        if not select.select([self._end], [], [], patience)[0]:
            raise TimeoutError(self.shown)
        # Linux reports the end of the last process in a terminal as an error.
        with contextlib.suppress(OSError):
            data = os.read(self._end, 4096)
            self.shown += self._decoder.decode(data)
            return bool(data)
        return False


# --- questions

DESTROYING = [
    (("topics", "delete", "t"), "Delete t (2 partitions), with all records?"),
    (
        ("topics", "delete-records", "t", "--partition", "0", "--before", "1"),
        "Delete the records of t-0 from offset 0 to 0?",
    ),
    (("groups", "delete", "g"), "Delete 1 group with all committed offsets: g?"),
    (("groups", "delete-offsets", "--group", "g", "--topic", "t"), "Delete the committed offsets of group g for t-0?"),
]


def state(store):
    return store.topics(), store.earliest_offset("t", 0), OffsetsLog(store).fetch("g")


@pytest.mark.parametrize(("arguments", "question"), DESTROYING)
def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(store, arguments, question):
    before = state(store)
    result = pylog(store, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {question} There is no terminal to ask at: give --yes. Nothing was changed.\n" in result.stderr
    assert state(store) == before
    assert pylog(store, *arguments, "--yes").exit_code == 0
    assert store.topics() == [] or state(store) != before


def test_in_a_terminal_the_user_decides(store):
    arguments, question = DESTROYING[0]
    refusing = Terminal(store, *arguments).wait_for(question).type("n\n")
    assert (refusing.end(), "[y/N]: n\r\nNothing was changed.\r\n" in refusing.shown) == (1, True)
    assert store.topics() == ["t"]
    assert Terminal(store, *arguments).wait_for(question).type("\n").end() == 1  # It is no unless yes is said.
    assert store.topics() == ["t"]
    agreeing = Terminal(store, *arguments).wait_for(question).type("y\n")
    assert (agreeing.end(), "Deleted topic t." in agreeing.shown) == (0, True)
    assert store.topics() == []


def test_ctrl_c_at_a_question_is_no(store):
    assert Terminal(store, "topics", "delete", "t").wait_for("[y/N]").interrupt() == 130
    assert store.topics() == ["t"]


def test_several_topics_are_deleted_or_none(store):
    store.create_topic("u", 1)
    assert pylog(store, "topics", "delete", "t", "nothing", "u", "--yes").exit_code == 1
    assert store.topics() == ["t", "u"]
    assert output(store, "topics", "delete", "t", "u", "--yes") == "Deleted topic t.\nDeleted topic u.\n"


# --- colours and progress


def test_headings_are_bold_in_a_terminal_only(store):
    run = Terminal(store, "offsets")
    assert run.end() == 0
    assert "\x1b[1mTOPIC" in run.shown
    plain = _STYLE.sub("", run.shown).replace("\r\n", "\n")
    assert plain == output(store, "offsets")
    assert "\x1b" not in plain


def test_a_table_fits_into_a_terminal(store, monkeypatch):
    # Others of its checks fail where a process gets no turn for seconds.
    monkeypatch.setattr(examination, "ONE_HOST", examination.ONE_HOST[:1])
    program = (
        "from pyspark_log.storage.maintenance.doctor import examination as one; one.ONE_HOST = one.ONE_HOST[:1];"
        "from pyspark_log.cli.main import main; main()"
    )
    run = Terminal(store, "doctor", store.path, program=("-c", program), COLUMNS="90")
    assert run.end() == 0
    shown = _STYLE.sub("", run.shown).split("\r\n")
    assert max(map(len, shown)) <= 90
    assert output(store, "doctor", store.path).count("\n") < len(shown)  # elsewhere each row is a line


def test_rows_too_wide_for_a_terminal_are_paragraphs(store):
    """What `verify` finds names a file and long reasons. No word is broken at the terminal's edge."""
    store.create_topic("page-views", 1)
    store.append("page-views", records(["a"], [b"1"]), partition=0)
    log = Path(store.path, "data", "page-views-0", "00000000000000000000.log")
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    run = Terminal(store, "verify", COLUMNS="80")
    assert run.end() == 1
    shown = _STYLE.sub("", run.shown.rpartition("\x1b[2K")[2]).split("\r\n")
    assert max(map(len, shown)) <= 80
    assert "WHERE       data/page-views-0/00000000000000000000.log, byte 0, offsets 0..0" in shown
    piped = pylog(store, "verify").stdout.splitlines()
    assert piped[0].split() == ["SEVERITY", "WHERE", "WHAT", "WHAT", "TO", "DO"]
    assert len(piped) == 3  # elsewhere each row is a line


def test_cells_are_wrapped_between_words():
    rows = [("one", "aa bbbb " * 4, "1"), ("two", "/a/path/that/is/not/broken", "22")]
    assert table_text(("NAME", "WHAT", "N"), rows, 36).splitlines() == [
        "NAME  WHAT                         N",
        "one   aa bbbb aa bbbb aa bbbb aa   1",
        "      bbbb",
        "two   /a/path/that/is/not/broken  22",
    ]
    assert len(table_text(("NAME", "WHAT", "N"), rows).splitlines()) == 3


def test_no_colours_where_the_user_wants_none(store):
    run = Terminal(store, "offsets", NO_COLOR="1")
    assert (run.end(), "\x1b[1m" in run.shown, "TOPIC" in run.shown) == (0, False, True)


def test_progress_is_shown_in_a_terminal_only(store, monkeypatch, capfd):
    def steps(progress):
        with progress as bar:
            bar(1, 3)
            bar(3, 3)

    steps(ProgressBar("look"))
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    steps(ProgressBar("look"))
    err = capfd.readouterr().err
    assert "look" in err


def test_a_bar_of_partitions_is_shown_when_it_takes_long(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for after, shown in ((60, False), (0, True)):
        with ProgressBar("delete t", of="partitions", after=after) as bar:
            bar(1, 3)
        assert ("1/3 partitions" in _STYLE.sub("", capfd.readouterr().err)) == shown


def test_verify_shows_its_progress(store):
    run = Terminal(store, "verify")
    assert run.end() == 0
    assert "verify" in run.shown
    assert "100%" in run.shown
    assert "no damage" in run.shown
    quiet = pylog(store, "verify")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


# --- live views


@pytest.mark.slow
def test_top_shows_what_changes_until_ctrl_c(store):
    run = Terminal(store, "top", "--interval", "0.1").wait_for("CAUGHT UP IN")
    assert re.search(r"t +2 +2 ", run.shown)
    store.append("t", records(["c"] * 3, [b"3"] * 3), partition=1)
    run.wait_for(" 5 ")
    assert run.interrupt() == 130


def test_keys_sort_and_filter_what_top_shows_and_end_it(store):
    store.create_topic("other", 1)
    run = Terminal(store, "top", "--interval", "3600").wait_for("CAUGHT UP IN")
    assert "sorted by TOPIC" in run.shown
    run.type("s").wait_for("sorted by RECORDS").type("/").wait_for("filter: _").type("oqr").wait_for("filter: oqr_")
    run.type("\x7f\x7f\x7foth\r").wait_for("filter: oth ")
    run.type("\x1b[A").type("q")
    assert (run.end(), run.restored) == (0, True)


def test_ctrl_c_leaves_the_terminal_as_it_was(store):
    run = Terminal(store, "top", "--interval", "3600").wait_for("CAUGHT UP IN")
    assert (run.interrupt(), run.restored) == (130, True)


def test_top_ends_without_a_keyboard(store):
    """Standard input need not be a terminal."""
    run = Terminal(store, "top", "--interval", "0.1", has_keyboard=False).wait_for("CAUGHT UP IN")
    assert run.interrupt() == 130


def test_what_top_shows_is_sorted_filtered_and_coloured():
    def look(second, **ends):
        topics = {name: TopicSnapshot(1, 0, end, 100 - end) for name, end in ends.items()}
        return Snapshot(second, topics, {("g", name): GroupSnapshot(0, end) for name, end in ends.items()})

    def names(view):
        lines = [line.split() for line in click.unstyle(view.show()).splitlines()[3:]]
        return [line[0] for line in lines[: lines.index([])]], [line[1] for line in lines[lines.index([]) + 2 :]]

    view = View("store", look(0.0, a=1, b=3, c=2))
    assert names(view) == (list("abc"), list("abc"))
    assert not view.press("s")
    assert names(view) == (list("bca"), list("bca"))  # by RECORDS, and by LAG
    view.press("r")
    assert names(view) == (list("acb"), list("acb"))
    view.press("s")
    assert names(view)[0] == list("bca")  # by SIZE, the smallest first
    for key in "/b\r":
        assert not view.press(key)
    assert names(view) == (["b"], ["b"])
    view.press("\x1b")
    view.update(look(2.0, a=1, b=13, c=2))
    for _ in range(3):
        view.press("s")
    assert "sorted by TOPIC" in view.show()
    assert "\x1b[32m      5.0\x1b[0m" in view.show()  # records a second, of b
    assert "\x1b[33m 13\x1b[0m" in view.show()  # its lag
    assert view.press("q")


@pytest.mark.slow
def test_a_group_is_watched(store):
    run = Terminal(store, "groups", "describe", "g", "--watch", "--interval", "0.1").wait_for("LOG-END-OFFSET")
    store.append("t", records(["c"] * 36, [b"3"] * 36), partition=0)
    run.wait_for("38")
    assert run.interrupt() == 130
    assert "Traceback" not in run.shown


def test_a_group_that_is_not_there_is_not_watched(store):
    result = pylog(store, "groups", "describe", "nobody", "--watch")
    assert (result.exit_code, "PYLOG_GROUP_ID_NOT_FOUND" in result.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [("--watch",), ("--watch", "--json")])
def test_a_group_is_watched_in_a_terminal_only(store, arguments):
    assert pylog(store, "groups", "describe", "g", *arguments).exit_code == 2
