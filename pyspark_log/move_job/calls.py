"""Finds the reads and writes of a program: the calls on a reader or writer, also in several statements, and options."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import libcst as cst

from pyspark_log.move_job.program import Program, nodes_in

#: The attributes that begin a chain of calls.
_ROOTS = frozenset({"read", "readStream", "write", "writeStream"})
#: The calls that end one, and which attribute it began with.
_ENDS = {"load": "read", "save": "write", "start": "writeStream", "toTable": "writeStream", "saveAsTable": "write"}
_STEPS = frozenset({
    "format", "option", "options", "schema", "mode", "outputMode", "trigger", "queryName", "partitionBy", "foreach",
    "foreachBatch",
})  # fmt: skip


@dataclass(frozen=True)
class Link:
    """One call of a chain."""

    name: str
    call: cst.Call

    def argument(self, position: int, keyword: str) -> cst.BaseExpression | None:
        """The argument at a position, or of that name."""
        plain = [arg.value for arg in self.call.args if arg.keyword is None and not arg.star]
        return plain[position] if position < len(plain) else self.keyword(keyword)

    def keyword(self, name: str) -> cst.BaseExpression | None:
        """The argument of that name."""
        return next((arg.value for arg in self.call.args if arg.keyword and arg.keyword.value == name), None)


@dataclass(eq=False)
class Flow:
    """A read or a write, as the calls that make it.

    Attributes:
        chains: the calls, in order; where a variable holds the reader or writer, those of each expression.
        roots: which attributes begin them; empty: that is not in the program's text.
    """

    chains: list[list[Link]]
    roots: set[str]

    @property
    def links(self) -> list[Link]:
        """All calls."""
        return [link for chain in self.chains for link in chain]

    @property
    def kind(self) -> str:
        """`read`, `readStream`, `write` or `writeStream`; "" if it may be several. A read may be one of a stream."""
        kinds = self.roots or {_ENDS[link.name] for link in self.links if link.name in _ENDS}
        return next(iter(kinds)) if len(kinds) == 1 else ""

    def named(self, name: str) -> list[Link]:
        """The calls of this name."""
        return [link for link in self.links if link.name == name]


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: its name; "": the program's text does not say it, or how many there are.
        key, value: the expressions for both.
        place: the call that sets it, or the literal dict and the number of its element; None: it cannot be changed
            there, as not only this read or write has it.
    """

    name: str
    key: cst.BaseExpression
    value: cst.BaseExpression
    place: Link | tuple[cst.Dict, int] | None


def flows_of(program: Program) -> list[Flow]:
    """The reads and writes of a program, and whatever else looks like one."""
    chains = dict[cst.BaseExpression, list[Link]]()
    for call in nodes_in(program.module, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _STEPS | _ENDS.keys():
            chains.setdefault(_receiver(call.func.value), []).append(Link(call.func.attr.value, call))
    flows, by_variable = list[Flow](), dict[object, Flow]()
    for receiver, links in chains.items():
        links.reverse()  # The last call is the outermost.
        root = receiver.attr.value if isinstance(receiver, cst.Attribute) else ""
        variables = list(_variables(program, receiver, links[-1]))
        flow = next((by_variable[variable] for variable in variables if variable in by_variable), None)
        if flow is None:
            flows.append(flow := Flow([], set()))
        flow.chains.append(links)
        flow.roots |= {root} & _ROOTS
        by_variable |= dict.fromkeys(variables, flow)
    return flows


def _receiver(node: cst.BaseExpression) -> cst.BaseExpression:
    """What the calls of a chain are made on."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _STEPS:
        node = node.func.value
    return node


def _variables(program: Program, receiver: cst.BaseExpression, last: Link) -> Iterator[object]:
    """The variables that a chain begins with, and that hold its unfinished reader or writer."""
    names: list[cst.BaseExpression] = [receiver]
    statement = program.parent(last.call)
    if last.name not in _ENDS and isinstance(statement, cst.Assign):
        names += [target.target for target in statement.targets]
    elif last.name not in _ENDS and isinstance(statement, cst.AnnAssign):
        names.append(statement.target)
    for name in names:
        if isinstance(name, cst.Name):
            yield from {(assignment.scope, name.value) for assignment in program.assignments(name)}


def options_of(program: Program, flow: Flow, calls: Collection[cst.Call]) -> Iterator[Option]:
    """The options of a read or write.

    Args:
        program: where it is.
        flow: it.
        calls: the calls of all reads and writes that change. A dict that others use as well stays as it is.
    """
    for link in flow.links:
        if link.name == "option":
            key, value = link.argument(0, "key"), link.argument(1, "value")
            if key is not None and value is not None:
                yield Option(program.text(key) or "", key, value, link)
        for arg in link.call.args if link.name in ("options", "load", "save", "start") else ():
            if arg.star == "**":
                yield from _of_dict(program, arg.value, calls)
            elif arg.keyword is not None and link.name == "options":
                yield Option(arg.keyword.value, arg.keyword, arg.value, None)


def _of_dict(program: Program, node: cst.BaseExpression, calls: Collection[cst.Call]) -> Iterator[Option]:
    literal = program.value(node)
    if not isinstance(literal, cst.Dict):
        yield Option("", node, node, None)
        return
    is_ours = not isinstance(node, cst.Name) or all(_is_ours(program, use, calls) for use in program.uses(node))
    for number, element in enumerate(literal.elements):
        if isinstance(element, cst.DictElement):
            place = (literal, number) if is_ours else None
            yield Option(program.text(element.key) or "", element.key, element.value, place)
        else:
            yield Option("", element.value, element.value, None)


def _is_ours(program: Program, use: cst.CSTNode, calls: Collection[cst.Call]) -> bool:
    """Whether a dict is used here for options of `calls`, or an element of it is set."""
    above = program.parent(use)
    if isinstance(above, cst.Subscript):
        return isinstance(program.parent(above), cst.AssignTarget)
    return isinstance(above, cst.Arg) and above.star == "**" and program.parent(above) in calls
