"""A Python program as a tree, what its names are sure to hold, and notes about its lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, TypeVar, cast

import libcst as cst
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    CodeRange,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

_N = TypeVar("_N", bound=cst.CSTNode)

#: A literal text, in one piece or several.
Literal = cst.SimpleString | cst.ConcatenatedString | cst.FormattedString


class Note(NamedTuple):
    """One thing that was found.

    Attributes:
        line: where, from 1.
        finding: what is there.
        advice: what to do.
        needed: whether the program does not do what it did, or does not run, until that is done.
    """

    line: int
    finding: str
    advice: str
    needed: bool


class UnreadableError(Exception):
    """A file is no program in Python 3, or one that cannot be changed."""


def nodes_in(tree: cst.CSTNode, *kinds: type[_N]) -> Iterator[_N]:
    """The nodes of these kinds in a tree, in the order of its text."""
    if isinstance(tree, kinds):
        yield tree
    for child in tree.children:
        yield from nodes_in(child, *kinds)


class Program:
    """A program that was read.

    Attributes:
        module: its tree, whose nodes are what the methods take.
    """

    def __init__(self, source: bytes) -> None:
        """UnreadableError: `source` is no program in Python 3."""
        try:
            wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        except (cst.ParserSyntaxError, UnicodeDecodeError, SyntaxError) as error:
            raise UnreadableError(" ".join(str(error).split())) from None
        if wrapper.module.bytes != source:
            raise UnreadableError("LibCST would change other places of it, too")
        self.module = wrapper.module
        self._lines = self.module.code.split("\n")
        self._places: Mapping[cst.CSTNode, CodeRange] = wrapper.resolve(PositionProvider)
        self._scopes: Mapping[cst.CSTNode, Scope | None] = wrapper.resolve(ScopeProvider)
        self._parents: Mapping[cst.CSTNode, cst.CSTNode] = wrapper.resolve(ParentNodeProvider)

    # ---- places

    def line(self, node: cst.CSTNode) -> int:
        """The line on which a node begins, from 1."""
        return self._places[node].start.line

    def indent_in_statement(self, node: cst.CSTNode) -> str:
        """The indentation of a node that begins a line, beyond that of its statement; "" for all others."""
        statement: cst.CSTNode | None = node
        while statement is not None and not isinstance(statement, cst.BaseStatement):
            statement = self.parent(statement)
        place = self._places[node].start
        before = self._lines[place.line - 1][: place.column]
        return "" if before.strip() or statement is None else before[self._places[statement].start.column :]

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, in one line."""
        return " ".join(self.module.code_for_node(node).split())

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """What a node is a part of."""
        return self._parents.get(node)

    def function_of(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The innermost function with a name that a node is in."""
        above = self.parent(node)
        while above is not None and not isinstance(above, cst.FunctionDef):
            above = self.parent(above)
        return above

    # ---- names

    def has_name(self, name: str) -> bool:
        """Whether the program has something of this name, but for attributes."""
        return any(
            node.value == name
            for node in nodes_in(self.module, cst.Name)
            if not isinstance(above := self.parent(node), cst.Attribute) or above.value is node
        )

    def assignments(self, name: cst.Name) -> Collection[BaseAssignment]:
        """What gives a name its value where it is used."""
        scope = self._scopes.get(name)
        return () if scope is None else scope[name.value]

    def uses(self, name: cst.Name) -> set[cst.CSTNode]:
        """Where the value that a name has here is used, in all of the program."""
        return {access.node for assignment in self.assignments(name) for access in assignment.references}

    def value(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What an expression is sure to be: for a name that is assigned once, that value; otherwise itself."""
        passed = set[cst.CSTNode]()
        while isinstance(node, cst.Name) and node not in passed:
            passed.add(node)
            node = self._assigned_once(node) or node
        return node

    def _assigned_once(self, name: cst.Name) -> cst.BaseExpression | None:
        assignments = list(self.assignments(name))
        if len(assignments) != 1 or not isinstance(assignments[0], Assignment):
            return None
        target = self.parent(assignments[0].node)
        statement = self.parent(target) if isinstance(target, cst.AssignTarget) else target
        return statement.value if isinstance(statement, cst.Assign | cst.AnnAssign) else None

    def line_of_assignment(self, assignment: BaseAssignment) -> int | None:
        """The line of an import, or of an assignment to one variable; None: it is of another kind."""
        if isinstance(assignment, ImportAssignment):
            return self.line(assignment.node)
        target = self.parent(assignment.node) if isinstance(assignment, Assignment) else None
        return self.line(target) if isinstance(target, cst.AssignTarget | cst.AnnAssign) else None

    # ---- texts

    def text(self, node: cst.BaseExpression) -> str | None:
        """The text that an expression is sure to be; None: it may be any, or is no text."""
        value = self.value(node)
        text = value.evaluated_value if isinstance(value, cst.SimpleString | cst.ConcatenatedString) else None
        return text if isinstance(text, str) else None

    def literals(self) -> Iterator[tuple[Literal, str]]:
        """The literal texts of the program, but for docstrings, with what they say: {} is what it computes."""
        for node in nodes_in(self.module, cst.SimpleString, cst.ConcatenatedString, cst.FormattedString):
            if isinstance(self.parent(node), cst.Expr | cst.ConcatenatedString):
                continue
            if isinstance(node, cst.FormattedString):
                parts = [part.value if isinstance(part, cst.FormattedStringText) else "{}" for part in node.parts]
                yield node, "".join(parts)
            elif (text := self.text(node)) is not None:
                yield cast(Literal, node), text
