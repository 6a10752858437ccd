"""`pylog move-job`: a PySpark program for Kafka, changed into one for a store, and what a person has to do about it.

It reads the program's text and runs nothing. What is not certain there stays as it is, and a note says so. It needs
LibCST, which no other part of the package does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from pyspark_log.move_job.calls import flows_of
from pyspark_log.move_job.findings import findings
from pyspark_log.move_job.moving import PLACEHOLDER, Mover
from pyspark_log.move_job.packages import remove_packages
from pyspark_log.move_job.program import Note, Program, UnreadableError, nodes_in

__all__ = ["PLACEHOLDER", "MovedProgram", "Note", "UnreadableError", "move"]


@dataclass(frozen=True)
class MovedProgram:
    """A program for a store.

    Attributes:
        source: its text, in the encoding, with the line ends and in the layout that it had.
        notes: what a person has to know or do, in the order of the lines of the program before.
        parts: how many reads and writes have moved.
    """

    source: bytes
    notes: list[Note]
    parts: int


def move(source: bytes, store: str | None) -> MovedProgram:
    """Moves a program.

    Args:
        source: its text.
        store: the path or URL that it gets in place of brokers' addresses; None: the name PLACEHOLDER, which someone
            has to define.

    Raises:
        UnreadableError: it is none.
    """
    body = _without_comments_at_the_end(source)
    program = Program(body)
    mover = Mover(program, store, flows_of(program))
    notes = [
        *mover.notes,
        *findings(program, mover.flows),
        *remove_packages(program, mover.edits, sure=bool(mover.flows) and not mover.unsure),
    ]
    if mover.flows:
        notes += _of_store(program, mover, store)
        notes += _unused(program, mover.edits.removed)
    module = mover.edits.made_in(program.module)
    if mover.write_stream:
        module = _with_import(module, mover.write_stream)
    return MovedProgram(module.bytes + source[len(body) :], _once(notes), len(mover.flows))


def _once(notes: list[Note]) -> list[Note]:
    """Notes by their lines; what need not be done is said once."""
    said = dict[tuple[object, ...], Note]()
    for note in sorted(notes):
        said.setdefault(note if note.needed else note[1:], note)
    return list(said.values())


def _without_comments_at_the_end(source: bytes) -> bytes:
    """A program without the comments and empty lines below it, of which LibCST loses some."""
    lines = source.splitlines(keepends=True)
    end = len(lines)
    while end and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith(b"#")):
        end -= 1
    is_continued = end and lines[end - 1].rstrip().endswith(b"\\")
    return source if is_continued else b"".join(lines[:end])


def _of_store(program: Program, mover: Mover, store: str | None) -> Iterator[Note]:
    first = mover.flows[0].links[0].call
    if store is None:
        finding = f"{PLACEHOLDER} is where the store's path has to be"
        yield Note(program.line(first), finding, "define it, or give --store", needed=True)
    if len(mover.servers) > 1:
        finding = f"several addresses of brokers become one store: {', '.join(mover.servers)}"
        yield Note(program.line(first), finding, "give those of another cluster its store's path", needed=False)
    for text, value in mover.servers.items():
        if program.text(value) is None:
            finding = f"the address of the brokers was {text}"
            advice = "the store's path is in the program now; take it from there, too, if it is not the same everywhere"
            yield Note(program.line(value), finding, advice, needed=False)


def _unused(program: Program, removed: list[cst.CSTNode]) -> Iterator[Note]:
    """What the program imports or assigns, and does not use any more."""
    gone = {name for node in removed for name in nodes_in(node, cst.Name)}
    for name in gone:
        for assignment in program.assignments(name) if program.uses(name) <= gone else ():
            line = program.line_of_assignment(assignment)
            if line is not None:
                yield Note(line, f"{name.value} is not used any more", "remove it", needed=False)


def _with_import(module: cst.Module, function: str) -> cst.Module:
    """The program with an import of `write_stream`, below the imports at its begin."""
    name = "write_stream" if function == "write_stream" else f"write_stream as {function}"
    line = cst.parse_statement(f"from pyspark_log.spark import {name}\n", module.config_for_parsing)
    after = 0
    for number, statement in enumerate(module.body):
        parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        is_docstring = number == 0 and parts and isinstance(parts[0], cst.Expr)
        if not is_docstring and not (parts and isinstance(parts[0], cst.Import | cst.ImportFrom)):
            break
        after = number + 1
    return module.with_changes(body=[*module.body[:after], line, *module.body[after:]])
