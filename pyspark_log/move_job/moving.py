"""Moves the reads and writes of a program from Kafka to a store: the two words, modes, and options without effect."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pyspark_log.connector_options import KNOWN_OPTIONS, concerns_brokers, meant_by
from pyspark_log.move_job.calls import Flow, Link, Option, options_of
from pyspark_log.move_job.edits import Edits, text_like
from pyspark_log.move_job.program import Note, Program, nodes_in
from pyspark_log.move_job.update_mode import NotSureError, as_write_stream

#: The name that has the place of the store's path where none is given.
PLACEHOLDER = "PYLOG_STORE"
_SERVERS = "kafka.bootstrap.servers"
_PARTITIONER = "kafka.partitioner.class"
_LIKE_APPEND = ("error", "errorifexists", "default")
_Calls = list[tuple[str, list[cst.BaseExpression]]]


def is_kafka(name: str | None) -> bool:
    """Whether a format is Spark's Kafka connector."""
    return name is not None and (name.lower() == "kafka" or name.startswith("org.apache.spark.sql.kafka010"))


class Mover:
    """What must change in the reads and writes of one program.

    Attributes:
        flows: those that are Kafka's.
        unsure: whether others may be.
        edits, notes: what is to change, and to say.
        servers: the addresses of brokers that go, by their text, with a place of each.
        write_stream: what the program must import `write_stream` as; "": it need not.
    """

    def __init__(self, program: Program, store: str | None, flows: Sequence[Flow]) -> None:
        self.edits, self.notes, self.unsure = Edits(), list[Note](), False
        self.servers = dict[str, cst.BaseExpression]()
        self.write_stream = ""
        self._program, self._store = program, store
        formats = {flow: [program.text(name) for name in _formats(flow)] for flow in flows}
        self.flows = [flow for flow, names in formats.items() if names and all(map(is_kafka, names))]
        self._calls = {link.call for flow in self.flows for link in flow.links}
        self._elements = dict[cst.Dict, set[int]]()
        self._seen = set[cst.BaseExpression]()
        for flow in self.flows:
            self._move(flow)
        for literal, numbers in self._elements.items():
            self.edits.remove_elements(literal, sorted(numbers))
        self._note_unsure([flow for flow, names in formats.items() if flow not in self.flows and None in names])

    def note(self, node: cst.CSTNode, finding: str, advice: str, *, needed: bool = True) -> None:
        """Adds a note about a place of the program."""
        self.notes.append(Note(self._program.line(node), finding, advice, needed))

    def _move(self, flow: Flow) -> None:
        options = list(options_of(self._program, flow, self._calls))
        self._seen |= {self._program.value(option.key) for option in options}
        if self._becomes_write_stream(flow, options):
            return
        going = {option.place for option in options if isinstance(option.place, Link) and _has_no_effect(option)}
        # Of df = df.option(...) something has to stay.
        staying = {link for chain in flow.chains if going.issuperset(chain) for link in chain}
        is_path = [self._change(option) for option in options if option.place not in staying]
        for name in _formats(flow):
            self.edits.replace(name, text_like(name, "pylog"))
        calls: _Calls = self._mode(flow) if flow.kind in ("write", "") else []
        if True not in is_path:
            calls.append(("option", [text_like(name, "path"), self._path(name)]))
        self.edits.insert_after(flow.named("format")[-1], calls)
        for link in flow.named("trigger"):
            self._check_trigger(link)

    def _note_unsure(self, flows: Sequence[Flow]) -> None:
        """Notes reads and writes that may be Kafka's: their options have brokers' addresses, or these are elsewhere."""
        gone = {literal for node in self.edits.removed for literal in nodes_in(node, cst.SimpleString)}
        others = {node for node, text in self._program.literals() if text == _SERVERS} - self._seen - gone
        options = {flow: options_of(self._program, flow, ()) for flow in flows}
        keys = {flow: {self._program.value(option.key) for option in each} for flow, each in options.items()}
        elsewhere = others.difference(*keys.values())
        for flow in flows:
            if keys[flow] & others or elsewhere:
                self.unsure = True
                name = _formats(flow)[0]
                advice = "where it is, give the format pylog and the option path, and a batch write the mode append"
                self.note(name, f"the format {self._program.code(name)} may be Kafka's; not changed", advice)
        for node in elsewhere if not self.unsure else ():
            advice = "nothing, if what reads or writes by it has moved, as it has no effect there"
            self.note(node, f"{_SERVERS} is still here", advice, needed=False)

    # ---- options

    def _change(self, option: Option) -> bool:
        """Changes an option, if it must be; whether it is the path now."""
        if option.place is None:
            return False
        if option.name.lower() == _SERVERS:
            self._keep_servers(option.value)
            self.edits.replace(option.key, text_like(option.key, "path"))
            self.edits.replace(option.value, self._path(option.key))
            return True
        if _has_no_effect(option):
            self._remove(option, option.place)
        return False

    def _remove(self, option: Option, place: Link | tuple[cst.Dict, int]) -> None:
        if isinstance(place, Link):
            self.edits.remove_link(place)
        else:
            self._elements.setdefault(place[0], set()).add(place[1])
        meant = meant_by(option.name.lower())
        if option.name == _PARTITIONER:
            advice = "give the rows a column partition: without one a row goes where its key's murmur2 hash says"
            self.note(option.key, f"the option {option.name} has no effect here; removed", advice)
        elif meant and not concerns_brokers(option.name.lower()):
            advice = f"is {meant} meant? It had no effect at Kafka either"
            self.note(option.key, f"the option {option.name} has no effect; removed", advice, needed=False)

    def _keep_servers(self, value: cst.BaseExpression) -> None:
        text = self._program.text(value)
        self.servers.setdefault(text or self._program.code(self._program.value(value)), value)

    def _path(self, like: cst.BaseExpression) -> cst.BaseExpression:
        return cst.Name(PLACEHOLDER) if self._store is None else text_like(like, self._store)

    # ---- modes

    def _mode(self, flow: Flow) -> _Calls:
        """Changes the mode of a batch write; returns the call that is missing."""
        modes = [value for link in flow.named("mode") if (value := link.argument(0, "saveMode")) is not None]
        modes += [value for link in flow.named("save") if (value := link.keyword("mode")) is not None]
        for value in modes:
            text = (self._program.text(value) or "").lower()
            if text in _LIKE_APPEND:
                self.edits.replace(value, text_like(value, "append"))
            elif text != "append":
                self.note(value, f"the mode of a write is {self._program.code(value)}", "make sure that it is append")
        if modes:
            return []
        if not flow.kind:
            advice = 'give it .mode("append") if it is a batch write'
            self.note(flow.links[0].call, "this may be a read or a write", advice)
            return []
        return [("mode", [text_like(_formats(flow)[0], "append")])]

    def _becomes_write_stream(self, flow: Flow, options: Sequence[Option]) -> bool:
        """Changes a write in output mode `update`; whether the flow is one that can be changed."""
        modes = [value for link in flow.named("outputMode") if (value := link.argument(0, "outputMode")) is not None]
        if flow.kind != "writeStream" or not modes:
            return False
        text = self._program.text(modes[-1])
        if text is None:
            advice = "where it is update, take write_stream of pyspark_log.spark: Spark refuses it for a sink in Python"
            self.note(modes[-1], f"the output mode is {self._program.code(modes[-1])}", advice, needed=False)
        if text is None or text.lower() != "update":
            return False
        function = "pylog_write_stream" if self._program.has_name("write_stream") else "write_stream"
        store = self._program.code(self._path(modes[-1]))
        effective = [option for option in options if not _has_no_effect(option) and option.name.lower() != _SERVERS]
        try:
            change = as_write_stream(self._program, flow, effective, store, function)
        except NotSureError as reason:
            finding = f"output mode update, which Spark refuses for a sink in Python; not changed: {reason}"
            advice = (
                f'write it as write_stream(rows, {store}, topic, mode="update", checkpoint=...) of pyspark_log.spark'
            )
            self.note(modes[-1], finding, advice)
            return False
        for option in set(options).difference(effective):
            self.edits.removed += [option.value] if isinstance(option.place, Link) else []
            if option.name.lower() == _SERVERS:
                self._keep_servers(option.value)
        self.edits.removed += [arg.value for link in flow.named("options") for arg in link.call.args if arg.star]
        self.write_stream = function
        self.edits.change(flow.links[-1].call, change)
        return True

    def _check_trigger(self, link: Link) -> None:
        for kind in ("continuous", "realTime"):
            if link.keyword(kind) is not None:
                advice = (
                    "take processingTime; or keep Spark's Kafka connector, with pylog serve (docs/guides/real-time.md)"
                )
                self.note(link.call, f"a trigger {kind}, which no sink or source in Python has", advice)


def _formats(flow: Flow) -> list[cst.BaseExpression]:
    """What the format is said to be; nothing where it may be that of a text."""
    if not flow.roots and {link.name for link in flow.links} <= {"format"}:
        return []
    return [name for link in flow.named("format") if (name := link.argument(0, "source")) is not None]


def _has_no_effect(option: Option) -> bool:
    """Whether an option means nothing at a store; the address of brokers becomes the path."""
    return option.name != "" and option.name.lower() not in (*KNOWN_OPTIONS, _SERVERS)
