"""How the values of a writer's Avro schema become those of a reader's: a program for the kernel `avro_columns`.

Apache Avro specification 1.12, "Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum, auto

from pyspark_log.errors import IncompatibleSchemaError
from pyspark_log.schemas.avro.defaults import encoded_default
from pyspark_log.schemas.avro.schema import AvroField, AvroType
from pyspark_log.schemas.avro.types import branches_of, single_branch
from pyspark_log.schemas.slots import Slot


class Op(IntEnum):
    """What a step does, as columns.pyx has it."""

    NULL = 0
    BOOLEAN = auto()
    INT = auto()
    LONG = auto()
    LONG_TO_FLOAT = auto()
    LONG_TO_DOUBLE = auto()
    FLOAT = auto()
    FLOAT_TO_DOUBLE = auto()
    DOUBLE = auto()
    BYTES = auto()
    STRING = auto()
    FIXED = auto()
    FIXED_TO_BYTES = auto()
    DECIMAL = auto()
    ENUM = auto()
    ARRAY = auto()
    MAP = auto()
    RECORD = auto()
    UNION = auto()
    MEMBER = auto()
    DEFAULT = auto()
    REFUSED = auto()


#: An op, the number of a column or -1, a number, and numbers of steps or blobs.
Step = tuple[int, int, int, tuple[int, ...]]

_NO_COLUMN = -1
# By the writer's and the reader's kind: the op, and whether the writer's number is an int.
_SAME = {
    ("null", "null"): (Op.NULL, 0),
    ("boolean", "boolean"): (Op.BOOLEAN, 0),
    ("int", "int"): (Op.INT, 1),
    ("int", "long"): (Op.LONG, 1),
    ("int", "float"): (Op.LONG_TO_FLOAT, 1),
    ("int", "double"): (Op.LONG_TO_DOUBLE, 1),
    ("long", "long"): (Op.LONG, 0),
    ("long", "float"): (Op.LONG_TO_FLOAT, 0),
    ("long", "double"): (Op.LONG_TO_DOUBLE, 0),
    ("float", "float"): (Op.FLOAT, 0),
    ("float", "double"): (Op.FLOAT_TO_DOUBLE, 0),
    ("double", "double"): (Op.DOUBLE, 0),
    ("bytes", "bytes"): (Op.BYTES, 0),
    ("bytes", "string"): (Op.STRING, 0),
    ("string", "string"): (Op.STRING, 0),
    ("string", "bytes"): (Op.BYTES, 0),
}
_TIMES = "timestamp-"


@dataclass
class Resolution:
    """A program.

    Attributes:
        steps: the first is that of the whole value.
        blobs: symbols of enums, and defaults.
        left_out: the paths of the writer's fields that the reader has not.
    """

    steps: list[Step] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def resolve(writer: AvroType, reader: AvroType, slot: Slot) -> Resolution:
    """How values of `writer` become those of `reader`, whose columns are `slot`.

    Raises:
        IncompatibleSchemaError: no value of the writer's can; or few bytes could be a value of any size.
        SchemaError: a default of the reader's is none.
    """
    resolver = _Resolver()
    resolver.step(Op.REFUSED)
    resolver.made.steps[0] = resolver.made.steps[resolver.resolved(writer, reader, slot)]
    return resolver.made


class _Resolver:
    def __init__(self) -> None:
        self.made = Resolution()
        self._path: list[str] = []
        self._skipped: dict[int, int] = {}

    def step(self, op: Op, column: int = _NO_COLUMN, number: int = 0, links: tuple[int, ...] = ()) -> int:
        self.made.steps.append((op, column, number, links))
        return len(self.made.steps) - 1

    def _blob(self, data: bytes) -> int:
        self.made.blobs.append(data)
        return len(self.made.blobs) - 1

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        self._path.append(name)
        try:
            yield
        finally:
            self._path.pop()

    def _mismatch(self, writer: AvroType, reader: AvroType, why: str = "") -> IncompatibleSchemaError:
        names = " as ".join(f"{kind.kind} {kind.name}".strip() for kind in (writer, reader))
        return IncompatibleSchemaError(f"{'.'.join(self._path) or 'the value'}: {names} cannot be read{why}")

    def resolved(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:  # noqa: PLR0911  (one a kind of pair)
        if writer.kind == "union":
            return self._of_union(writer, reader, slot)
        if reader.kind == "union":
            return self._into_union(writer, reader, slot)
        if reader.logical == "decimal":
            return self._decimal(writer, reader, slot)
        if writer.logical.startswith(_TIMES) and reader.logical.startswith(_TIMES) and writer.logical != reader.logical:
            raise self._mismatch(writer, reader, f": {writer.logical} and {reader.logical} have other units")
        if (writer.kind, reader.kind) in _SAME:
            op, number = _SAME[writer.kind, reader.kind]
            return self.step(op, slot.number, number)
        if writer.kind != reader.kind:
            raise self._mismatch(writer, reader)
        if writer.kind == "record":
            return self._record(writer, reader, slot)
        if writer.kind == "array":
            with self._within("element"):
                return self._items(Op.ARRAY, writer, reader, slot, slot.children[0])
        if writer.kind == "map":
            with self._within("value"):
                return self._items(Op.MAP, writer, reader, slot, slot.children[0].children[1])
        if not _same_name(writer, reader):
            raise self._mismatch(writer, reader, ": the names differ")
        return self._enum(writer, reader, slot) if writer.kind == "enum" else self._fixed(writer, reader, slot)

    def _of_union(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:
        links, problem = list[int](), None
        for branch in writer.parts:
            try:
                links.append(self.resolved(branch, reader, slot))
            except IncompatibleSchemaError as error:
                # A value of that branch is refused when one comes.
                problem = error
                links.append(self.step(Op.REFUSED))
        if problem is not None and all(self.made.steps[link][0] == Op.REFUSED for link in links):
            raise problem
        return self.step(Op.UNION, links=tuple(links))

    def _into_union(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:
        if writer.kind == "null":
            if all(branch.kind != "null" for branch in reader.parts):
                raise self._mismatch(writer, reader)
            return self.step(Op.NULL, slot.number)
        single = single_branch(reader)
        if single is not None:
            return self.resolved(writer, single, slot)
        branches = list(zip(branches_of(reader), slot.children, strict=True))
        own = [pair for pair in branches if _is_of_its_name(writer, pair[0])]
        # Its own branch is the only one, also if the value does not fit; else it is the first that it can become.
        branches.sort(key=lambda pair: pair[0].short_name != writer.short_name)
        for branch, child in own or branches:
            try:
                link = self.resolved(writer, branch, child)
            except IncompatibleSchemaError:
                if own:
                    raise
                continue
            return self.step(Op.MEMBER, slot.number, child.number, (link,))
        raise self._mismatch(writer, reader)

    def _decimal(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:
        if writer.kind != reader.kind:
            # Also a text, which bytes without a logical type would take.
            raise self._mismatch(writer, reader)
        if writer.logical == "decimal" and (writer.precision, writer.scale) != (reader.precision, reader.scale):
            digits = f"({writer.precision}, {writer.scale}) and ({reader.precision}, {reader.scale})"
            raise self._mismatch(writer, reader, f": the precisions and scales of decimals differ: {digits}")
        if writer.kind == "fixed" and writer.size != reader.size:
            raise self._mismatch(writer, reader, ": the sizes differ")
        size = writer.size if writer.kind == "fixed" else -1
        return self.step(Op.DECIMAL, slot.number, reader.precision, (size,))

    def _record(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:
        places = {part.name: place for place, part in enumerate(reader.fields)}
        names = {part.name for part in writer.fields}
        for place, part in enumerate(reader.fields):
            if part.name not in names:
                places |= {alias: place for alias in part.aliases if alias not in places}
        links, filled = list[int](), set[int]()
        for part in writer.fields:
            with self._within(part.name):
                at = places.get(part.name)
                if at is None:
                    self.made.left_out.append(".".join(self._path))
                    links.append(self._skip(part.type))
                else:
                    filled.add(at)
                    links.append(self.resolved(part.type, reader.fields[at].type, slot.children[at]))
        for place, part in enumerate(reader.fields):
            if place not in filled:
                with self._within(part.name):
                    links.append(self._default(part, slot.children[place]))
        return self.step(Op.RECORD, slot.number, links=tuple(links))

    def _default(self, missing: AvroField, slot: Slot) -> int:
        if not missing.has_default:
            path = ".".join(self._path)
            raise IncompatibleSchemaError(f"{path}: the writer has no such field, and the reader no default for it")
        data = encoded_default(missing.type, missing.default, ".".join(self._path))
        return self.step(Op.DEFAULT, links=(self.resolved(missing.type, missing.type, slot), self._blob(data)))

    def _items(self, op: Op, writer: AvroType, reader: AvroType, slot: Slot, item: Slot) -> int:
        self._check_items(op, writer)
        link = self.resolved(writer.parts[0], reader.parts[0], item)
        if op == Op.ARRAY:
            return self.step(op, slot.number, links=(link,))
        return self.step(op, slot.number, links=(self.step(Op.STRING, slot.children[0].children[0].number), link))

    def _check_items(self, op: Op, writer: AvroType) -> None:
        if op == Op.ARRAY and _takes_no_bytes(writer.parts[0], ()):
            raise IncompatibleSchemaError(
                f"{'.'.join(self._path)}: an array's items take no bytes, so that a short value could have any number"
            )

    def _enum(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:
        blobs = {symbol: self._blob(symbol.encode()) for symbol in reader.symbols}
        other = blobs.get(reader.default, -1) if reader.default is not None else -1
        return self.step(Op.ENUM, slot.number, links=tuple(blobs.get(symbol, other) for symbol in writer.symbols))

    def _fixed(self, writer: AvroType, reader: AvroType, slot: Slot) -> int:
        if writer.size != reader.size:
            raise self._mismatch(writer, reader, f": {writer.size} bytes and {reader.size}")
        return self.step(Op.FIXED, slot.number, writer.size)

    def _skip(self, writer: AvroType) -> int:
        """The step that reads a value for no column."""
        earlier = self._skipped.get(id(writer)) if writer.name else None
        if earlier is not None:
            return earlier
        number_of_step = self.step(Op.REFUSED)
        self._skipped[id(writer)] = number_of_step
        if writer.kind == "record":
            step = (Op.RECORD, 0, tuple(self._skip(part.type) for part in writer.fields))
        elif writer.kind == "union":
            step = (Op.UNION, 0, tuple(self._skip(part) for part in writer.parts))
        elif writer.kind == "array":
            self._check_items(Op.ARRAY, writer)
            step = (Op.ARRAY, 0, (self._skip(writer.parts[0]),))
        elif writer.kind == "map":
            step = (Op.MAP, 0, (self.step(Op.BYTES), self._skip(writer.parts[0])))
        elif writer.kind == "fixed":
            step = (Op.FIXED, writer.size, ())
        elif writer.kind == "enum":
            step = (Op.ENUM, 0, (-1,) * len(writer.symbols))
        else:
            op, number = _SAME[writer.kind, writer.kind]
            step = (op, number, ())
        self.made.steps[number_of_step] = (step[0], _NO_COLUMN, step[1], step[2])
        return number_of_step


def _is_of_its_name(writer: AvroType, reader: AvroType) -> bool:
    return writer.kind == reader.kind and (writer.name == reader.name or writer.name in reader.aliases)


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    return writer.short_name == reader.short_name or writer.name in reader.aliases


def _takes_no_bytes(kind: AvroType, inside: tuple[AvroType, ...]) -> bool:
    """Whether some value of a type takes none."""
    if any(kind is part for part in inside):
        return True
    if kind.kind == "record":
        return all(_takes_no_bytes(part.type, (*inside, kind)) for part in kind.fields)
    return kind.kind == "null" or (kind.kind == "fixed" and not kind.size)
