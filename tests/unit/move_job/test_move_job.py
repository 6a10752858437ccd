"""What `pylog move-job` changes in a program, and what it says."""

import re

import pytest
from programs import PROGRAMS

from pyspark_log.move_job import UnreadableError, move


def parts_of(text):
    """A program before, after, and its notes."""
    *lines, _ = text.removeprefix("\n").split("\n")
    notes = [line for line in lines if line[:1].isdigit()]
    program = [line for line in lines if line not in notes]
    before, after = ("".join(f"{line[1:]}\n" for line in program if line[:1] != sign) for sign in "+-")
    return before, after, notes


def moved(text, store="/s"):
    """A program after it has moved, and its notes."""
    program = move(text.encode(), store)
    return program.source.decode(), [
        f"{note.line}{'!' if note.needed else ''} {note.finding}: {note.advice}" for note in program.notes
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    before, after, expected = parts_of(PROGRAMS[name])
    program, notes = moved(before)
    assert program == after
    assert len(notes) == len(expected)
    for note, beginning in zip(notes, expected, strict=True):
        assert note.startswith(beginning)
    compile(program, name, "exec")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_has_moved_stays_as_it_is(name):
    _, after, _ = parts_of(PROGRAMS[name])
    assert moved(after)[0] == after


READ = 'spark.read.format("kafka").option("kafka.bootstrap.servers", "b").load()\n'


def test_a_store_that_is_not_given_is_a_name_to_define():
    program, notes = moved(READ, None)
    assert program == 'spark.read.format("pylog").option("path", PYLOG_STORE).load()\n'
    assert notes == ["1! PYLOG_STORE is where the store's path has to be: define it, or give --store"]


def test_a_path_is_quoted():
    program, _ = moved(READ, 'C:\\a "b"')
    assert eval(re.search(r'"path", (".*")\)', program)[1]) == 'C:\\a "b"'


@pytest.mark.parametrize(
    "source",
    [
        "\ufeff# höher\r\n{}\r\n".encode(),
        "# -*- coding: latin-1 -*-\nx = 'é'\n{}".encode("latin-1"),
        b"{}\n\n    # below\n# and\n    # more",  # LibCST loses one of these
        b"{} \\\n# below",
    ],
)
def test_the_rest_of_a_file_stays_byte_for_byte(source):
    call = READ.strip().encode()
    expected = b'spark.read.format("pylog").option("path", "/s").load()'
    assert move(source.replace(b"{}", call), "/s").source == source.replace(b"{}", expected)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (b"print 'a'", "Syntax Error"),
        (b"# coding: none\nx = 1", "none"),
        (b"x = '\xe9'", "encoding"),
        (b"\x0cx = 1", "LibCST would change other places"),
    ],
)
def test_what_is_no_program_is_refused(source, error):
    with pytest.raises(UnreadableError, match=error):
        move(source, "/s")
