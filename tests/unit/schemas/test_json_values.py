"""Values that are JSON objects become columns; what is none, or more than one, is found, and moves no other."""

import json
import random

import pyarrow as pa
import pytest

from pyspark_log.errors import SchemaError
from pyspark_log.schemas import TypedValues, format_of

SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}})


def typed(schema):
    return TypedValues(format_of({"valueformat": "json", "valueschema": schema}, "value", "t"))


def decoded(*values):
    array, bad = typed(SCHEMA).decode(pa.array(values, pa.binary()))
    array.validate(full=True)
    return array.to_pylist(), [problem.row for problem in bad]


@pytest.mark.parametrize(
    "value",
    [
        b'{"id": 1}, "x": 5',
        b'{"id": 1}, "x": {"id": 5}',
        b'{"id": 1} {"id": 2}',
        b'{"id": 1}\n{"id": 2}',
        b'{"id": 1}{"name": "}',
        b'{"id": 1}{"id": 2}\0}',
        b"",
        b"5",
        b'{"name": "a\nb"}',
        b'{"name": "\xff"}',
        b'{"id": 1, "id": 2}',
        b'{"x": ' + b"[" * 100_000 + b"}",
    ],
)
def test_what_is_not_one_object_is_found(value):
    assert decoded(b'{"id": 7}', value, b'"}', b'{"id": 8}') == (
        [{"id": 7, "name": None}, None, None, {"id": 8, "name": None}],
        [1, 2],
    )


def test_an_object_may_have_space_around_and_lines_within():
    values = [b' {"id": 1}\r\n', b'{"id": 2,\n "name": "{"}', b'{"x": ' + b"[" * 1000 + b"]" * 1000 + b"}", b"null"]
    rows = [{"id": 1, "name": None}, {"id": 2, "name": "{"}, {"id": None, "name": None}, None]
    assert decoded(*values) == (rows, [])


def test_bad_values_anywhere_move_no_other():
    dice = random.Random(51)
    values = [b'{"id": %d}' % number for number in range(5000)]
    expected = [{"id": number, "name": None} for number in range(5000)]
    places = sorted(dice.sample(range(5000), 60))
    for place in places:
        values[place] = dice.choice([b'{"id": 1', b'{"id"; 1}', b'{"id": "x"}', b"{} {}", b'{"name": "\xff"}'])
        expected[place] = None
    assert decoded(*values) == (expected, places)


def test_a_schema_that_is_none_is_refused():
    for text in (
        '{"type": "object", "properties": "x"}',
        '{"type": "object", "properties": {"\\ud800": {}}}',
        "[" * 9999,
    ):
        with pytest.raises(SchemaError):
            typed(text)
