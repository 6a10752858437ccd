"""What is in a program beside its reads and writes, and matters when these move."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from pyspark_log.move_job.calls import Flow
from pyspark_log.move_job.moving import is_kafka
from pyspark_log.move_job.program import Note, Program, nodes_in

_IN_SQL = re.compile(r"\busing\s+kafka\b", re.IGNORECASE)
_OF_PROGRESS = re.compile(r"(start|end|latest)Offset|\w*OffsetsBehindLatest|KafkaV2.*")
_CLIENT = re.compile(r"(aiokafka|kafka)(\..*)?|confluent_kafka(\.admin)?")
_STARTERS = re.compile(r"(.*\.)?(Thread|Timer)|.*\.(submit|map|starmap|apply_async|run_in_executor|to_thread)")


def findings(program: Program, flows: Sequence[Flow]) -> Iterator[Note]:
    """The notes about a program of which `flows` move."""
    for node, text in program.literals():
        if _IN_SQL.search(text):
            yield Note(
                program.line(node),
                "USING kafka in SQL; not changed",
                "for a temporary view write USING pylog OPTIONS (path '...', subscribe '...'); a table in a catalog "
                "does not pass its options on: name them in each statement, FROM t WITH (path = '...', ...)",
                needed=True,
            )
    for arg in nodes_in(program.module, cst.Arg):
        if arg.keyword is not None and arg.keyword.value in ("format", "source") and is_kafka(program.text(arg.value)):
            finding = f"the argument {program.code(arg).rstrip(', ')}; not changed"
            yield Note(program.line(arg), finding, "give pylog, and the option path", needed=True)
    yield from _imports(program, flows)
    if flows:
        yield from _progress(program)
        yield from _threads(program, flows)


def _imports(program: Program, flows: Sequence[Flow]) -> Iterator[Note]:
    for node in nodes_in(program.module, cst.Import, cst.ImportFrom):
        module = program.code(node).split()[1]
        if module == "pyspark.streaming.kafka":
            advice = "write it with readStream, as a store has no streams of RDDs"
            yield Note(program.line(node), "a DStream of Kafka's; not changed", advice, needed=True)
        elif flows and _CLIENT.fullmatch(module):
            advice = "run pylog serve, which answers it from the same store; or take pyspark_log.Producer and Consumer"
            yield Note(program.line(node), f"{module} talks to a broker", advice, needed=False)


def _progress(program: Program) -> Iterator[Note]:
    attributes = (node for node in nodes_in(program.module, cst.Attribute) if _OF_PROGRESS.fullmatch(node.attr.value))
    literals = (node for node, text in program.literals() if _OF_PROGRESS.fullmatch(text))
    lines = [program.line(node) for nodes in (attributes, literals) for node in nodes]
    if lines:
        advice = (
            "skip the key that begins with @ among an offset's topics; take latestOffset minus endOffset, or pylog "
            "groups, in place of metrics, which are empty; description does not name Kafka or the topics"
        )
        yield Note(min(lines), "it looks into the progress of queries", advice, needed=True)


def _threads(program: Program, flows: Sequence[Flow]) -> Iterator[Note]:
    """Writes in functions that a thread runs, also in those that they call."""
    functions = {function.name.value: function for function in nodes_in(program.module, cst.FunctionDef)}
    reached, new = set[str](), _started(program) & functions.keys()
    while new:
        reached |= new
        bodies = [functions[name].body for name in new]
        new = {node.value for body in bodies for node in nodes_in(body, cst.Name)} & functions.keys() - reached
    for flow in flows:
        call = flow.links[0].call
        function = program.function_of(call)
        if flow.kind.startswith("write") and function is not None and function.name.value in reached:
            yield Note(
                program.line(call),
                f"a write that may run in a thread of Python's, in {function.name.value}",
                'call spark.createDataFrame([], "a int") in the thread first, as Spark finds a sink in Python by the '
                "session that is active in the thread; or write by pyspark_log.spark",
                needed=True,
            )


def _started(program: Program) -> set[str]:
    """The names among the arguments of what starts threads."""
    names = set[str]()
    for call in nodes_in(program.module, cst.Call):
        if _STARTERS.fullmatch(program.code(call.func)):
            names |= {node.value for arg in call.args for node in nodes_in(arg.value, cst.Name)}
    return names
