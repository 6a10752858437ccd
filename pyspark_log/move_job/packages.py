"""The jars of Spark's Kafka connector among the packages of a session, which a program that has moved need not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pyspark_log.move_job.calls import Link
from pyspark_log.move_job.edits import Edits, text_like
from pyspark_log.move_job.program import Literal, Note, Program

_JARS = re.compile(r"spark-(sql|streaming)-kafka-0-10|kafka-clients|spark-token-provider-kafka")
_PACKAGE = re.compile(r"[\w.-]+:[\w.{}-]+(:[\w.{}-]+)?")
_OLD_SPARK = re.compile(r"spark-sql-kafka-0-10_2\.\d\d[:-]([23](\.\d+)+)")


def remove_packages(program: Program, edits: Edits, *, sure: bool) -> Iterator[Note]:
    """Removes Kafka's packages where that is sure; notes say where it is not.

    Args:
        program: the program.
        edits: gets the changes.
        sure: whether no read or write of the program is Kafka's any more.
    """
    elements = dict[cst.List, list[int]]()
    for node, text in program.literals():
        if old := _OLD_SPARK.search(text):
            advice = "run it with PySpark 4.0 or later, as Spark 3 has no data sources in Python"
            yield Note(program.line(node), f"the program is made for Spark {old[1]}", advice, needed=False)
        if not _JARS.search(text):
            continue
        element = program.parent(node)
        sequence = program.parent(element) if isinstance(element, cst.BaseElement) else None
        packages = [package.strip() for package in text.split(",") if package.strip()]
        is_sure = sure and all(map(_PACKAGE.fullmatch, packages))
        if is_sure and len(packages) == 1 and isinstance(sequence, cst.List):
            numbers = [number for number, each in enumerate(sequence.elements) if each is element]
            elements[sequence] = elements.get(sequence, []) + numbers
        elif not is_sure or not _shorten(program, edits, node, [each for each in packages if not _JARS.search(each)]):
            advice = "remove it, if no other program of the session reads or writes Kafka"
            yield Note(program.line(node), "a jar of Spark's Kafka connector", advice, needed=False)
    for sequence, numbers in elements.items():
        edits.remove_elements(sequence, numbers)


def _shorten(program: Program, edits: Edits, node: Literal, packages: list[str]) -> bool:
    """Leaves these packages in a literal; whether that is possible."""
    place = program.parent(node)
    call = program.parent(place) if isinstance(place, cst.Arg) else None
    is_config = isinstance(call, cst.Call) and program.text(call.args[0].value) == "spark.jars.packages"
    if isinstance(call, cst.Call) and is_config and not packages:
        edits.remove_link(Link("config", call))
        return True
    if isinstance(node, cst.FormattedString):
        return False
    if not is_config and not isinstance(place, cst.Assign | cst.AnnAssign | cst.DictElement):
        return False
    edits.replace(node, text_like(node, ",".join(packages)))
    return True
