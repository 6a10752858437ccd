"""Changes of a program, collected first and made at once, so that all the rest of its text stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import libcst as cst

from pyspark_log.move_job.calls import Link

_E = TypeVar("_E", cst.BaseDictElement, cst.BaseElement)
_Change = Callable[[cst.CSTNode], cst.CSTNode]


class Edits:
    """What is to change.

    Attributes:
        removed: the nodes that are no longer in the program.
    """

    def __init__(self) -> None:
        self._changes = dict[cst.CSTNode, _Change]()
        self._removed_links = set[cst.CSTNode]()
        self.removed = list[cst.CSTNode]()

    def change(self, node: cst.CSTNode, change: _Change) -> None:
        """Has `change` make another node of this one, whose parts have their changes by then."""
        self._changes[node] = change

    def replace(self, node: cst.CSTNode, other: cst.CSTNode) -> None:
        """Has another node in place of this one."""
        self.removed.append(node)
        self.change(node, lambda _: other)

    def remove_link(self, link: Link) -> None:
        """Removes a call of a chain."""
        self.removed += link.call.args
        self._removed_links.add(link.call)
        self.change(link.call, lambda call: cst.ensure_type(cst.ensure_type(call, cst.Call).func, cst.Attribute).value)

    def insert_after(self, link: Link, calls: Sequence[tuple[str, Sequence[cst.BaseExpression]]]) -> None:
        """Inserts calls, with their arguments, after one of a chain."""

        dot = cst.ensure_type(link.call.func, cst.Attribute).dot
        space = dot.whitespace_before
        if isinstance(space, cst.ParenthesizedWhitespace):
            dot = cst.Dot(space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[]))

        def longer(node: cst.CSTNode) -> cst.CSTNode:
            for name, arguments in calls:
                method = cst.Attribute(cast(cst.BaseExpression, node), cst.Name(name), dot.deep_clone())
                node = cst.Call(method, [cst.Arg(argument) for argument in arguments])
            return node

        self.change(link.call, longer)

    def remove_elements(self, node: cst.Dict | cst.List, numbers: Sequence[int]) -> None:
        """Removes elements of a literal, by their numbers."""
        self.removed += [node.elements[number] for number in numbers]

        def shorter(changed: cst.CSTNode) -> cst.CSTNode:
            if isinstance(changed, cst.Dict):
                elements, end = _without(changed.elements, numbers, changed.rbrace.whitespace_before)
                brace = cst.RightCurlyBrace(end)
                return changed.with_changes(elements=elements, rbrace=brace) if elements else cst.Dict([])
            literal = cst.ensure_type(changed, cst.List)
            items, end = _without(literal.elements, numbers, literal.rbracket.whitespace_before)
            return literal.with_changes(elements=items, rbracket=cst.RightSquareBracket(end)) if items else cst.List([])

        self.change(node, shorter)

    def made_in(self, module: cst.Module) -> cst.Module:
        """The program with the changes."""
        return cst.ensure_type(module.visit(_Changer(self._changes, self._removed_links)), cst.Module)


def _without(
    elements: Sequence[_E], numbers: Sequence[int], end: cst.BaseParenthesizableWhitespace
) -> tuple[list[_E], cst.BaseParenthesizableWhitespace]:
    """The elements that stay, and the space before the bracket that ends them, which was `end`."""
    stay = [element for number, element in enumerate(elements) if number not in numbers]
    if not stay or len(elements) - 1 not in numbers:
        return stay, end
    comma = stay[-1].comma
    stay[-1] = stay[-1].with_changes(comma=elements[-1].comma)
    # The comment on the line of the new last one is above the bracket now.
    space = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    if isinstance(space, cst.ParenthesizedWhitespace) and isinstance(end, cst.ParenthesizedWhitespace):
        end = end.with_changes(first_line=space.first_line)
    return stay, end


class _Changer(cst.CSTTransformer):
    def __init__(self, changes: dict[cst.CSTNode, _Change], removed_links: set[cst.CSTNode]) -> None:
        super().__init__()
        self._changes, self._removed_links = changes, removed_links

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        """Makes the change of a node, if there is one."""
        if isinstance(updated_node, cst.Attribute) and isinstance(original_node, cst.Attribute):
            updated_node = self._with_comment_above(original_node, updated_node)
        change = self._changes.get(original_node)
        return updated_node if change is None else change(updated_node)

    def _with_comment_above(self, original: cst.Attribute, updated: cst.Attribute) -> cst.Attribute:
        """A step of a chain; below steps that were removed it follows the line, and its comment, that they followed."""
        space: cst.BaseParenthesizableWhitespace | None = None
        step: cst.CSTNode = original.value
        while step in self._removed_links:
            method = cst.ensure_type(cst.ensure_type(step, cst.Call).func, cst.Attribute)
            space, step = method.dot.whitespace_before, method.value
        now = updated.dot.whitespace_before
        if not isinstance(space, cst.ParenthesizedWhitespace) or not isinstance(now, cst.ParenthesizedWhitespace):
            return updated
        return updated.with_deep_changes(updated.dot, whitespace_before=now.with_changes(first_line=space.first_line))


def text_like(other: cst.BaseExpression, text: str) -> cst.SimpleString:
    """A literal text, in the quotes of another one."""
    quote = other.quote[0] if isinstance(other, cst.SimpleString) else '"'
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return cst.SimpleString(f"{quote}{escaped}{quote}")
