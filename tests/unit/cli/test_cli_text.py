"""What each command prints, and its help, as text that is read in a diff: `text/*.txt`, at 80 and 160 columns.

After a change that is meant: `python tests/unit/cli/test_cli_text.py`, and read what git says has changed.
"""

import difflib
import re
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from tests.paths import ROOT

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
from test_cli_kinds import CALLS, commands, filled

TEXT = Path(__file__).with_name("text")
# Their figures are of the machine and the moment.
MEASURED = {"perf consume", "perf produce", "metrics", "top"}
# Of the path of a folder: widths of columns follow from it.
LENGTH = 100
HOST = re.escape(socket.gethostname())
# What differs from run to run, and how it is written.
VARIES = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"\b1[6-9]\d{11}\b", "TIME_MS"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\b\d+(\.\d+)? m?s\b", "N s"),
    (r"\b\d+(\.\d+)? [GT]iB\b", "N GiB"),
    (r" +FREE", "  FREE"),  # as wide as the figure below it
    (r"(?<=\"free\": )\d+|(?<=\"total\": )\d+|(?<=\"process\": )\d+|(?<=process )\d+|(?<=\"seconds\": )[\d.]+", "N"),
    (r"\b(47\d|72\d)\b", "N"),  # bytes with those of the decision, whose times take one more or less
    (r"\b[0-9a-f]{32}\b", "HEX"),
    (rf"(?<=host ){HOST}\b|(?<=\"host\": \"){HOST}\b", "HOST"),
)  # fmt: skip


def shown(command, words, place, columns):
    """What a call of a command prints on a new store in a folder."""
    path, new = filled(place / "store"), str(place / "new")
    with Store.open(path) as store:
        ids = [store.cluster_id, *(store.describe_topic(topic).topic_id for topic in store.topics(internal=True))]
    given = [word.format(path=path, new=new) for word in words.split()]
    runner = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(main, ["--store", path, *command.split(), *given], input="x\n", prog_name="pylog")
    text = result.output
    names = [("STORE", path), ("NEW", new), ("PLACE", str(place)), ("PROJECT", str(ROOT))]
    for name, value in [*names, *(("ID", given_by_chance) for given_by_chance in ids)]:
        text = text.replace(value, name)
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    end = f"exit code {result.exit_code}\n" if result.exit_code else ""
    return f"$ pylog {command} {words}".rstrip() + f"    ({columns} columns)\n{text}{end}"


def text_of(command):
    """The help of a command, and what its calls print."""
    runner = CliRunner(env={"COLUMNS": "80"})
    parts = [runner.invoke(main, [*command.split(), "--help"], prog_name="pylog").output]
    for words in CALLS.get(command, []) if command not in MEASURED else []:
        for columns in (80, 160):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder, "x" * (LENGTH - len(folder) - 1))
                place.mkdir()
                part = shown(command, words, place, columns)
            if columns == 80 or part.split("\n", 1)[1] != parts[-1].split("\n", 1)[1]:
                parts.append(part)
    return "\n".join(parts)


def file_of(command):
    return TEXT / f"{command.replace(' ', '-')}.txt"


def test_each_command_has_its_text():
    assert {path.name for path in TEXT.iterdir()} == {file_of(command).name for command in commands()}


@pytest.mark.parametrize("command", sorted(commands()))
def test_text(command):
    kept, now = file_of(command).read_text(encoding="utf-8"), text_of(command)
    assert not list(difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="")), now


if __name__ == "__main__":
    for old in TEXT.glob("*.txt"):
        old.unlink()
    TEXT.mkdir(exist_ok=True)
    for each in commands():
        file_of(each).write_text(text_of(each), encoding="utf-8")
