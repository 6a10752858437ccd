"""Files of Protobuf's language, parsed: their messages, fields and enums.

https://protobuf.dev/reference/protobuf/proto3-spec/ and proto2-spec. What says nothing of a message's bytes (options,
services, extensions, reserved numbers) is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark_log.errors import SchemaError

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>\.?[A-Za-z_][\w.]*)"""
    r"""|(?P<number>-?[0-9][\w.+-]*)|(?P<sign>[{}()\[\];=<>,:/-])""",
    re.DOTALL,
)
#: Types of fields that are no message or enum.
SCALARS = (
    "bool", "int32", "sint32", "uint32", "int64", "sint64", "uint64", "fixed32", "sfixed32", "float", "fixed64",
    "sfixed64", "double", "string", "bytes",
)  # fmt: skip
_MOST_DEPTH = 50
_LAST_NUMBER = 2**29 - 1


@dataclass
class ProtoField:
    """A field.

    Attributes:
        name: its name.
        number: its number.
        type: a scalar, or the name of a message or enum, as it is written.
        repeated: whether it has any number of values.
        presence: whether a message that lacks it is different from one in which it is 0 or empty.
        oneof: the name of the oneof that it is in, or "".
        key: of a map: the type of its keys; "": it is none. `type` is that of the values then.
    """

    name: str
    number: int
    type: str
    repeated: bool = False
    presence: bool = False
    oneof: str = ""
    key: str = ""


@dataclass
class ProtoMessage:
    """A message: its full name, its fields, and its place in the file, after those of the messages around it."""

    name: str
    fields: list[ProtoField] = field(default_factory=list)
    place: tuple[int, ...] = ()


@dataclass
class ProtoFile:
    """A file, with what it imports.

    Attributes:
        messages, enums: by their full names. An enum has names by number.
    """

    messages: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)

    def resolved(self, name: str, scope: str) -> str:
        """The full name of a type that is written in a message. SchemaError: there is no such type."""
        if name.startswith("."):
            candidates = [name[1:]]
        else:
            parts = scope.split(".")
            candidates = [".".join([*parts[:length], name]) for length in range(len(parts), -1, -1)]
        for candidate in candidates:
            if candidate in self.messages or candidate in self.enums:
                return candidate
        raise SchemaError(f"{scope}: there is no message or enum {name}; give the files that it imports, too")


def parse_proto(text: str, into: ProtoFile | None = None) -> ProtoFile:
    """The messages and enums of a file.

    Args:
        text: the file.
        into: gets those of the file; None: an empty one.

    Raises:
        SchemaError: it is no such file.
    """
    parser = _Parser(text, ProtoFile() if into is None else into)
    try:
        parser.file()
    except (IndexError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a file of Protobuf's language: {error or type(error).__name__}") from None
    return parser.to


class _Parser:
    def __init__(self, text: str, to: ProtoFile) -> None:
        self.to = to
        self._tokens = _tokens(text)
        self._at = 0
        self._is_proto3 = False
        self._places = 0

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise ValueError("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            if (got := self._next()) != token:
                raise ValueError(f"expected {token}, got {got:.40}")

    def file(self) -> None:
        package = ""
        while word := self._peek():
            if word in ("syntax", "edition"):
                self._next()
                self._expect("=")
                version = self._next()[1:-1]
                # From editions on a field has presence unless a feature says otherwise, which is passed over.
                self._is_proto3 = version == "proto3"
                self._expect(";")
            elif word == "package":
                self._next()
                package = self._next()
                self._expect(";")
            else:
                self._declaration(package, ())

    def _declaration(self, scope: str, place: tuple[int, ...]) -> None:
        word = self._peek()
        if word == "message":
            self._message(scope, place)
        elif word == "enum":
            self._enum(scope)
        else:
            self._pass_over()

    def _message(self, scope: str, place: tuple[int, ...]) -> None:
        self._expect("message")
        if len(place) > _MOST_DEPTH:
            raise ValueError(f"more than {_MOST_DEPTH} messages within each other")
        name = self._next()
        message = ProtoMessage(f"{scope}.{name}" if scope else name, place=place or (self._places,))
        if not place:
            self._places += 1
        self.to.messages[message.name] = message
        self._expect("{")
        inner = 0
        while self._peek() != "}":
            if self._peek() == "message" and self._tokens[self._at + 2] == "{":
                self._message(message.name, (*message.place, inner))
                inner += 1
            elif self._peek() == "enum" and self._tokens[self._at + 2] == "{":
                self._enum(message.name)
            elif self._peek() == "oneof" and self._tokens[self._at + 2] == "{":
                self._oneof(message)
            elif self._peek() in ("option", "reserved", "extensions", "extend", ";"):
                self._pass_over()
            else:
                message.fields.append(self._field(""))
        self._expect("}")
        numbers = [part.number for part in message.fields]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"two fields of {message.name} have one number")

    def _oneof(self, message: ProtoMessage) -> None:
        self._expect("oneof")
        name = self._next()
        self._expect("{")
        while self._peek() != "}":
            if self._peek() == "option":
                self._pass_over()
            else:
                message.fields.append(self._field(name))
        self._expect("}")

    def _field(self, oneof: str) -> ProtoField:
        label = self._next() if self._peek() in ("optional", "required", "repeated") else ""
        kind, key = self._next(), ""
        if kind == "map" and self._peek() == "<":
            self._expect("<")
            key = self._next()
            self._expect(",")
            kind = self._next()
            self._expect(">")
        if kind == "group":
            raise ValueError("it has a group, which no column is made of")
        name = self._next()
        self._expect("=")
        number = int(self._next(), 0)
        if not 0 < number <= _LAST_NUMBER:
            raise ValueError(f"the field {name} has the number {number}")
        if self._peek() == "[":
            self._pass_block("[", "]")
        self._expect(";")
        repeated = label == "repeated" or key != ""
        presence = not repeated and (oneof != "" or label != "" or not self._is_proto3)
        return ProtoField(name, number, kind, repeated, presence, oneof, key)

    def _enum(self, scope: str) -> None:
        self._expect("enum")
        name = self._next()
        symbols = dict[int, str]()
        self._expect("{")
        while self._peek() != "}":
            if self._peek() in ("option", "reserved", ";") and self._tokens[self._at + 1] != "=":
                self._pass_over()
                continue
            symbol = self._next()
            self._expect("=")
            number = self._next()
            symbols.setdefault(-int(self._next(), 0) if number == "-" else int(number, 0), symbol)
            if self._peek() == "[":
                self._pass_block("[", "]")
            self._expect(";")
        self._expect("}")
        self.to.enums[f"{scope}.{name}" if scope else name] = symbols

    def _pass_over(self) -> None:
        """A statement that says nothing of bytes: up to its semicolon, or to the end of its block."""
        while (token := self._next()) != ";":
            if token == "{":
                self._at -= 1
                self._pass_block("{", "}")
                if self._peek() == ";":
                    self._next()
                return

    def _pass_block(self, begin: str, end: str) -> None:
        self._expect(begin)
        depth = 1
        while depth:
            token = self._next()
            depth += (token == begin) - (token == end)


def _tokens(text: str) -> list[str]:
    tokens, at = list[str](), 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaError(f"not a file of Protobuf's language: {text[at : at + 20]!r} is nothing in it")
        at = match.end()
        if match.lastgroup:
            tokens.append(match[0])
    return tokens


_TIMES = "message {0} {{ int64 seconds = 1; int32 nanos = 2; }}"
_VALUES = {
    "Double": "double",
    "Float": "float",
    "Int64": "int64",
    "UInt64": "uint64",
    "Int32": "int32",
    "UInt32": "uint32",
}
_VALUES |= {"Bool": "bool", "String": "string", "Bytes": "bytes"}
#: What files of Google's have that others import, which need not be given. `Struct` holds itself, so it has no column.
WELL_KNOWN = "\n".join([
    'syntax = "proto3"; package google.protobuf;',
    _TIMES.format("Timestamp"), _TIMES.format("Duration"), "message Empty {}",
    "message Any { string type_url = 1; bytes value = 2; }", "message FieldMask { repeated string paths = 1; }",
    *(f"message {name}Value {{ {kind} value = 1; }}" for name, kind in _VALUES.items()),
    "message Struct { map<string, Value> fields = 1; } message ListValue { repeated Value values = 1; }",
    "enum NullValue { NULL_VALUE = 0; }",
    "message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;",
    "bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }",
])  # fmt: skip
