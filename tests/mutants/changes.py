"""Small changes of a program, found in its tokens, so that one way serves for Python and for the kernels."""

import hashlib
import io
import keyword
import operator
import re
import tokenize
import zlib
from collections import Counter
from typing import NamedTuple

from tests.paths import ROOT

_TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_WORDS = {"True": ("constant", "False"), "False": ("constant", "True"), "and": ("join", "or"), "or": ("join", "and")}
_WHOLE = re.compile(r"0[xX][0-9a-fA-F_]+|[0-9_]+")
_OPENING, _CLOSING = {"(", "[", "{"}, {")", "]", "}"}
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Change(NamedTuple):
    """One change. Its name has no line, so it is the same change after others in the file.

    Attributes:
        kind: what is changed: compare, number, constant, join, not, call.
        ordinal: which one of that kind in the function.
        lines: the first and the last line of the statement.
        start, end: the line and column where the old text begins and ends.
        in_function: whether the statement runs when a function is called, not when the file is imported.
    """

    file: str
    function: str
    kind: str
    ordinal: int
    lines: tuple[int, int]
    start: tuple[int, int]
    end: tuple[int, int]
    new: str
    in_function: bool

    @property
    def name(self):
        return f"{self.file}:{self.function}:{self.kind}:{self.ordinal}"

    @property
    def package(self):
        return self.file.rpartition("/")[0]

    def made_in(self, text):
        """The text of the file with this change."""
        lines = text.splitlines(keepends=True)
        (first, at), (last, until) = self.start, self.end
        lines[first - 1 : last] = [lines[first - 1][:at] + self.new + lines[last - 1][until:]]
        return "".join(lines)


def drawn(changes, seed, count):
    """Some changes: one of each package, if there is room, and its share beyond; rare kinds are among them."""

    def chance(change):
        return hashlib.sha256(f"{seed} {change.name}".encode()).digest()

    by_chance = sorted(changes, key=chance)
    packages, kinds = (Counter(map(key, changes)) for key in (_package, _kind))
    # A kind weighs as the root of its number, as else half of all were comparisons and numbers.
    by_kind = sorted(by_chance, key=_ranks(by_chance, _kind, lambda kind: kinds[kind] ** 0.5))
    return sorted(by_kind, key=_ranks(by_kind, _package, packages.get))[:count]


def _package(change):
    return change.package


def _kind(change):
    return change.package, change.kind


def _ranks(changes, key, weight):
    """For each change how many with the same key come before it, by the weight of the key."""
    seen = Counter()
    ranks = {}
    for change in changes:
        ranks[change] = seen[key(change)] / weight(key(change))
        seen[key(change)] += 1
    return ranks.get


def all_changes(begin=""):
    """Those of the product: modules and kernels."""
    names = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "pyspark_log").rglob("*.py*"))
    names = [name for name in names if name.endswith((".py", ".pyx")) and name.startswith(begin)]
    return [change for name in names for change in changes_of(name, (ROOT / name).read_text(encoding="utf-8"))]


def changes_of(file, text):
    """All changes of a program."""
    found = []
    numbers = Counter()
    scopes = []  # the indent, name and kind of each class and function around a statement
    for statement in _statements(text):
        while scopes and scopes[-1][0] >= statement[0].start[1]:
            scopes.pop()
        function = ".".join(name for _, name, _ in scopes)
        lines = statement[0].start[0], statement[-1].end[0]
        for kind, start, end, new in () if _is_passed_over(statement) else _changes(statement):
            numbers[function, kind] += 1
            ordinal = numbers[function, kind]
            by = 1 if zlib.crc32(f"{file} {function} {ordinal}".encode()) % 2 else -1
            now = _moved(new, by) if kind == "number" else new
            in_function = any(called for _, _, called in scopes)
            found.append(Change(file, function, kind, ordinal, lines, start, end, now, in_function))
        if statement[-1].string == ":" and (scope := _scope(statement)):
            scopes.append((statement[0].start[1], *scope))
    return found


def _statements(text):
    statement = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if statement:
                yield statement
            statement = []
        elif token.type not in _NO_CODE:
            statement.append(token)


def _is_passed_over(statement):
    """A decorator, or the head of a C function, where a number is what the function returns with an exception."""
    return statement[0].string == "@" or (statement[0].string in ("cdef", "cpdef") and statement[-1].string == ":")


def _scope(statement):
    """The name of the class or function that a statement begins, and whether it is a function."""
    words = [token.string for token in statement]
    if words[0] in ("class", "def", "async", "cdef", "cpdef"):
        if "class" in words[:2]:
            return words[words.index("class") + 1], False
        if "(" in words:
            return words[words.index("(") - 1], True
    return None


def _changes(statement):
    """The kind, start, end and new text of each; of a number the old text."""
    if _is_call(statement):
        yield "call", statement[0].start, statement[-1].end, "pass"
    words = [token.string for token in statement] + [""]
    loops = []  # how deep in brackets a `for` is whose `in` comes
    depth = 0
    for index, token in enumerate(statement):
        word, after, before = token.string, words[index + 1], words[index - 1] if index else ""
        depth += (word in _OPENING) - (word in _CLOSING)
        if word == "for":
            loops.append(depth)
        elif word == "in" and loops and loops[-1] == depth:
            loops.pop()
        elif word == "is" and after == "not":
            yield "compare", token.start, statement[index + 1].end, "is"
        elif word == "is":
            yield "compare", token.start, token.end, "is not"
        elif word == "not" and after == "in":
            yield "compare", token.start, statement[index + 1].end, "in"
        elif word == "in" and before != "not":
            yield "compare", token.start, token.end, "not in"
        elif word == "not" and before != "is":
            yield "not", token.start, statement[index + 1].start, ""
        elif word in _TURNED and token.line[token.start[1] - 1] == " " == token.line[token.end[1]]:  # no cast of C
            yield "compare", token.start, token.end, _TURNED[word]
        elif word in _WORDS:
            yield _WORDS[word][0], token.start, token.end, _WORDS[word][1]
        elif token.type == tokenize.NUMBER and _WHOLE.fullmatch(word):
            yield "number", token.start, token.end, word


def _moved(number, by):
    value = int(number, 0) + by
    return hex(value) if "x" in number.lower() else str(value)


def _is_call(statement):
    """A call and nothing else, whose result is not used."""
    words = [token.string for token in statement]
    if words[0] == "await":
        words, statement = words[1:], statement[1:]
    if words[-1] != ")" or statement[0].type != tokenize.NAME or keyword.iskeyword(words[0]):
        return False
    depth = 0
    outside = ["."]
    for token in statement:
        depth -= token.string in _CLOSING
        if depth == 0 and token.string not in _OPENING | _CLOSING:
            outside.append("name" if token.type == tokenize.NAME else token.string)
        depth += token.string in _OPENING
    return set(outside) == {".", "name"} and all(map(operator.ne, outside, outside[1:]))
