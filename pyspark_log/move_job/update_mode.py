"""A streaming write in output mode `update`, which Spark refuses for a sink in Python, as a call of `write_stream`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import libcst as cst

from pyspark_log.move_job.calls import Flow, Link, Option
from pyspark_log.move_job.program import Program, nodes_in

_LONGEST_LINE = 80
_OF_OPTIONS = {"topic": "topic", "checkpointlocation": "checkpoint", "queryname": "name"}
_OF_TRIGGERS = {"processingTime": "interval", "availableNow": "available_now"}


class NotSureError(Exception):
    """Why a write is not changed."""


def as_write_stream(
    program: Program, flow: Flow, options: Iterable[Option], store: str, function: str
) -> Callable[[cst.CSTNode], cst.CSTNode]:
    """The change that makes a call of `write_stream` of the last call of a write.

    Args:
        program, flow: the write.
        options: those of its options that have an effect at a store.
        store: the store's path, as an expression.
        function: what `write_stream` is called in the program.

    Raises:
        NotSureError: the call would not do the same.
    """
    if len(flow.chains) > 1 or flow.roots != {"writeStream"} or flow.links[-1].name != "start":
        raise NotSureError("it is not one expression, from writeStream to start()")
    arguments: dict[str, cst.BaseExpression] = {}
    for option in options:
        argument = _OF_OPTIONS.get(option.name.lower())
        if argument is None:
            raise NotSureError(f"it has the options {program.code(option.key)}")
        arguments[argument] = option.value
    for link in flow.links:
        arguments |= _of_call(program, link)
    if "checkpoint" not in arguments:
        raise NotSureError("write_stream needs a checkpoint, and the write names no checkpointLocation")
    top, rows = flow.links[-1].call, _rows(flow.links[-1].call, len(flow.links))
    of_rows = set(nodes_in(rows, cst.Comment))
    comments = [comment.value for comment in nodes_in(top, cst.Comment) if comment not in of_rows]
    named = {name: f"{name}={program.module.code_for_node(value)}" for name, value in arguments.items()}
    topic = [program.module.code_for_node(arguments["topic"])] if named.pop("topic", None) else []
    after = [store, *topic, 'mode="update"', *named.values()]

    indent = program.indent_in_statement(top)

    def changed(node: cst.CSTNode) -> cst.CSTNode:
        call = cst.ensure_type(node, cst.Call)
        parts = [program.module.code_for_node(_rows(call, len(flow.links))), *after]
        line = f"{function}({', '.join(parts)})"
        if comments or "\n" in line or len(line) > _LONGEST_LINE:
            # The tree adds the indentation of the statement.
            step = f"\n{indent}    "
            line = f"{function}({step}{step.join([*comments, *(f'{part},' for part in parts)])}\n{indent})"
        expression = cst.parse_expression(line, program.module.config_for_parsing)
        return expression.with_changes(lpar=call.lpar, rpar=call.rpar)

    return changed


def _of_call(program: Program, link: Link) -> dict[str, cst.BaseExpression]:
    """The arguments that a call of the chain is, if it sets no options."""
    args = link.call.args
    if link.name == "queryName" and len(args) == 1:
        return {"name": args[0].value}
    if link.name == "trigger" and len(args) == 1 and args[0].keyword and args[0].keyword.value in _OF_TRIGGERS:
        return {_OF_TRIGGERS[args[0].keyword.value]: args[0].value}
    if link.name in ("format", "option", "options", "outputMode") or (link.name == "start" and not args):
        return {}
    raise NotSureError(f"write_stream has nothing like {link.name}({', '.join(map(program.code, args))})")


def _rows(top: cst.Call, calls: int) -> cst.BaseExpression:
    """The rows that a chain of calls writes: what is before `.writeStream`."""
    node: cst.BaseExpression = top
    for _ in range(calls):
        node = cst.ensure_type(cst.ensure_type(node, cst.Call).func, cst.Attribute).value
    return cst.ensure_type(node, cst.Attribute).value
