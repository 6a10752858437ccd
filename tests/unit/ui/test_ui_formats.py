"""Keys and values as the page shows them; and numbers, times and plots."""

import io
import json
import subprocess
import sys
import time

import fastavro
import pytest

from pyspark_log.ui import texts
from pyspark_log.ui.bounds import COLOURED_CHARACTERS, SHOWN_CHARACTERS
from pyspark_log.ui.history import Trend
from pyspark_log.ui.looks.avro import Schemas
from pyspark_log.ui.looks.formats import Shown, shown, visible
from pyspark_log.ui.looks.json_text import coloured, fields
from pyspark_log.ui.plots import bars, plot, small_plot
from tests.registry_server import registry_server

NONE = Schemas(None)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}],
}
VALUE = {"item": "tea", "n": 3}


def show(data, wanted="auto", schemas=NONE, configs=None, **more):
    of_values = schemas.of_topic("orders", "value", configs or {})
    return shown(data, more.pop("size", len(data or b"")), wanted, of_values, **more)


@pytest.mark.parametrize(
    ("data", "wanted", "expected"),
    [
        (None, "auto", Shown("null", "null")),
        (b"", "auto", Shown("", "text")),
        ("zażółć".encode(), "auto", Shown("zażółć", "text")),
        (b'{"a": [1, 2]}', "auto", Shown('{"a": [1, 2]}', "json")),
        (b"17", "auto", Shown("17", "text")),
        (b"17", "json", Shown("17", "json")),
        (b"{a}", "auto", Shown("{a}", "text")),
        (b"{a}", "json", Shown("{a}", "text", "no JSON")),
        (b"\xff\x00", "auto", Shown("ff 00", "hex")),
        (b"a\x00b", "auto", Shown("61 00 62", "hex")),
        (b"ab", "hex", Shown("61 62", "hex")),
        (b"\xffa", "text", Shown("�a", "text")),
        (b"a\x00b", "text", Shown("a\\u{0}b", "text")),
        (b'{"a": 1}', "text", Shown('{"a": 1}', "text")),
    ],
)
def test_forms(data, wanted, expected):
    assert show(data, wanted) == expected


def test_what_is_cut():
    assert show("aż".encode()[:2], size=500) == Shown("a", "text", "cut after 2 of 500 bytes")
    assert show(b'{"a": 1}', size=500).kind == "text"
    assert show(b"\x00\x01", "avro", size=500).note.endswith("too long to decode")


def test_laid_out():
    assert show(b'{"a": [1]}', is_laid_out=True).text == '{\n  "a": [\n    1\n  ]\n}'
    assert show(bytes(range(60, 80)), "hex", is_laid_out=True).text.splitlines() == [
        "00000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK",
        "00000010  4c 4d 4e 4f                                      LMNO",
    ]


def test_json_that_would_take_far_more_when_it_is_laid_out():
    depth = 200
    deep = b"[" + b",".join([b"[" * depth + b"]" * depth] * 600) + b"]"
    assert len(deep) < 256 << 10
    began = time.process_time()
    assert len(show(deep, is_laid_out=True).text) < SHOWN_CHARACTERS + 10_000
    assert time.process_time() - began < 10
    too_deep = b"[" * 100_000 + b"]" * 100_000
    assert show(too_deep).kind == "text"


def test_json_is_shown_as_it_is_stored():
    stored = (
        '{"a": 1, "a": 2, "b": 12345678901234567890.123456789, "c": 1e400, "d": "\\u017c,:{ \\"", "e": [], "f": {}}'
    )
    assert show(stored.encode()) == Shown(stored, "json")
    assert show(stored.replace(": ", ":\n").replace(", ", "\t,").encode()) == Shown(stored, "json")
    lines = show(stored.encode(), is_laid_out=True).text.splitlines()
    assert [line.strip().rstrip(",") for line in lines] == [
        "{", '"a": 1', '"a": 2',
        '"b": 12345678901234567890.123456789', '"c": 1e400', '"d": "\\u017c,:{ \\""', '"e": []',
        '"f": {}', "}",
    ]  # fmt: skip
    digits = "9" * 100_000
    assert show(f"[{digits}]".encode()) == Shown(f"[{digits}]", "json")
    assert show(b"[NaN]").kind == "text"
    assert show('{"a": "ż"}'.encode("utf-16-le")) == Shown('{"a": "ż"}', "json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1.50, "b": {"c": [1, {"d": 2}]}, "e": "x, \\"y\\": {"}',
         {"a": "1.50", "b": '{"c": [1, {"d": 2}]}', "e": 'x, \\"y\\": {'}),
        ('{"a": [], "a": {}, "": null}', {"a": "{}", "": "null"}),
        ("{}", {}),
        ('[{"a": 1}]', {}),
        ("17", {}),
    ],
)  # fmt: skip
def test_the_fields_of_an_object(text, expected):
    assert fields(text) == expected


def test_json_has_colours():
    assert coloured('{"<a>": ["<b>", -1.5e3, null]}') == (
        '{<span class="name">&#34;&lt;a&gt;&#34;</span>: [<span class="string">&#34;&lt;b&gt;&#34;</span>, '
        '<span class="digits">-1.5e3</span>, <span class="word">null</span>]}'
    )
    assert "span" not in coloured("[" + "1," * COLOURED_CHARACTERS)


@pytest.mark.parametrize("depth", [300, 900, 950, 980, 1200, 5000])
@pytest.mark.parametrize("is_laid_out", [False, True])
def test_deep_json(depth, is_laid_out):
    found = show(b"[" * depth + b"]" * depth, is_laid_out=is_laid_out)
    assert found.kind in ("json", "text")
    assert found.text.count("[") == depth


def test_each_character_can_be_seen():
    assert visible("a\u202eb\x1b[2J\u200b") == "a\\u{202e}b\\u{1b}[2J\\u{200b}"
    assert visible("a\tb\n") == "a\tb\n"


# ---- Avro


@pytest.fixture
def schemas(tmp_path):
    (tmp_path / "orders-value.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    return Schemas(str(tmp_path))


def encoded(value=VALUE, schema=ORDER):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\7", b"\0\0\0\0\x09"])
def test_avro(schemas, prefix):
    assert show(prefix + encoded(), "avro", schemas) == Shown('{"item": "tea", "n": 3}', "avro")


def test_a_topic_names_its_format(tmp_path):
    """So its values are shown by it, without a word; and as hex, with the reason, where they are none."""
    (tmp_path / "orders-value.avsc").write_text(json.dumps(ORDER))
    configs = {"value.format": "avro", "schema.registry": str(tmp_path)}
    for schemas in (NONE, Schemas(str(tmp_path), takes_registries=False)):
        assert show(encoded(), "auto", schemas, configs) == Shown('{"item": "tea", "n": 3}', "avro")
        assert show(b"{}", "auto", schemas, configs).note.startswith("the schema does not fit")
        assert show(b"{}", "text", schemas, configs) == Shown("{}", "text")
    # What a server's clients may set does not say what it reads or asks.
    alone = Schemas(None, takes_registries=False)
    assert "needs valueSchema, or schemaRegistry" in show(encoded(), "auto", alone, configs).note


def test_a_registry_is_asked_once_for_a_page():
    with registry_server() as registry:
        number = registry.register("orders-value", ORDER)
        schemas, framed = Schemas(registry.url), b"\0" + number.to_bytes(4, "big") + encoded()
        shown_of = {show(framed, "avro", schemas).text for _ in range(50)}
        shown_of |= {show(framed, "auto", schemas, {"value.format": "confluent"}).text for _ in range(50)}
        assert shown_of == {'{"item": "tea", "n": 3}'}
        assert "no schema for" in show(b"\0\0\0\0\x63" + encoded(), "avro", schemas).note
        assert len(registry.asked) == 3


def test_what_is_no_avro(schemas, tmp_path):
    assert show(b"a", "avro").note == "Avro needs schemas: name their folder or registry by --schemas"
    for data in (b"", b"\x02", encoded() + b"x", b"\0\0\0\0\7" + b"\x02"):
        found = show(data, "avro", schemas)
        assert found.kind == "hex"
        assert "the schema does not fit" in found.note
    (tmp_path / "orders-value.avsc").write_text("{")
    assert "not an Avro schema" in show(encoded(), "avro", schemas).note
    (tmp_path / "orders-value.avsc").unlink()
    assert "has no orders-value.avsc" in show(encoded(), "avro", schemas).note


def test_a_short_value_that_would_have_any_number_of_items(schemas, tmp_path):
    (tmp_path / "orders-value.avsc").write_text('{"type": "array", "items": "null"}')
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    assert "take no bytes" in show(many, "avro", schemas).note
    nested = {"name": "R", "type": "record", "fields": [{"name": "f", "type": {"type": "array", "items": {
        "name": "E", "type": "record", "fields": [{"name": "n", "type": "null"}]}}}]}  # fmt: skip
    (tmp_path / "orders-value.avsc").write_text(json.dumps(nested))
    assert "take no bytes" in show(many, "avro", schemas).note


def test_protobuf_and_unions_and_maps(schemas, tmp_path):
    (tmp_path / "9.proto").write_text('syntax = "proto3"; message A { int32 n = 1; map<string, int32> m = 2; }')
    value = b"\0\0\0\0\x09\0" + b"\x08\5\x12\5\x0a\1k\x10\7"
    assert show(value, "avro", schemas) == Shown('{"n": 5, "m": {"k": 7}}', "avro")
    either = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "int", "string"]}]}
    (tmp_path / "orders-value.avsc").write_text(json.dumps(either))
    shown_of = [show(encoded({"f": value}, either), "avro", schemas).text for value in (None, 5, "x")]
    assert shown_of == ['{"f": null}', '{"f": 5}', '{"f": "x"}']


@pytest.mark.parametrize(
    "next_one",
    [
        ["null", "L"],
        {"type": "array", "items": "L"},
        {"type": "map", "values": ["null", "L"]},
        {"type": "record", "name": "Other", "fields": [{"name": "back", "type": ["null", "L"]}]},
    ],
)
def test_a_value_that_could_be_of_any_depth(schemas, tmp_path, next_one):
    schema = {"type": "record", "name": "L", "namespace": "shop", "fields": [{"name": "next", "type": next_one}]}
    (tmp_path / "orders-value.avsc").write_text(json.dumps(schema))
    # In a process of its own: without the check the first of them crashes it.
    code = (
        "import sys; from pyspark_log.ui.looks.avro import Schemas\n"
        "try: Schemas(sys.argv[1]).decoded('orders-value', b'\\2' * 1_000_000 + b'\\0')\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "shop.L refers to itself" in done.stdout) == (0, True)


def test_a_named_type_may_be_used_twice(schemas, tmp_path):
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "one", "type": point}, {"name": "more", "type": {"type": "array", "items": "P"}}]}  # fmt: skip
    (tmp_path / "orders-value.avsc").write_text(json.dumps(schema))
    value = {"one": {"x": 1}, "more": [{"x": 2}, {"x": 3}]}
    assert json.loads(show(encoded(value, schema), "avro", schemas).text) == value


# ---- numbers and times


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (texts.count(1234567), "1,234,567"),
        (texts.count(None), "-"),
        ([texts.short(one) for one in (0, 5, 0.25, 950, 1200, 34_500_000, 5e12, 2e18)],
         ["0", "5", "0.25", "950", "1.2 k", "34 M", "5 T", "2000000 T"]),
        (texts.size_rate(2048), "2.0 KiB/s"),
        ([texts.span(one) for one in (5, 300, 7200, 5 * 86_400)], ["5 s", "5 min", "2 h", "5 d"]),
        ([texts.age(time, 100_000) for time in (99_900, 40_000, 200_000, -1, None)],
         ["just now", "1 min ago", "in 2 min", "-", "-"]),
        (texts.point(1_700_000_000_123), "2023-11-14 22:13:20.123"),
        (texts.clock_time(1_700_000_000_123, 1_700_000_001_000), "22:13:20.123"),
        (texts.clock_time(1_700_000_000_123, 1_800_000_000_000), "2023-11-14 22:13:20.123"),
        (texts.to_time("10m", 1_000_000), 400_000),
        (texts.to_time("2023-11-14T22:13:20Z", 0), 1_700_000_000_000),
        (texts.to_time("123", 0), 123),
        (texts.trend(0, Trend(5, 5)), ("good", "at the end, reads 5/s")),
        (texts.trend(100, Trend(0, 10)), ("good", "shrinks by 10/s, at the end in 10 s")),
        (texts.trend(100, Trend(15, 10)), ("bad", "grows by 5/s")),
        (texts.trend(100, Trend(0, 0)), ("bad", "does not move")),
        (texts.trend(100, Trend(10, 10)), ("plain", "keeps up, reads 10/s")),
        (texts.trend(100, Trend(None, None)), ("plain", "is being measured")),
    ],
)  # fmt: skip
def test_texts(found, expected):
    assert found == expected


@pytest.mark.parametrize("text", ["", "yesterday", "10 parsecs", "2023-13-01"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match=r"ms|ISO"):
        texts.to_time(text, 0)


def test_plots():
    points = [(float(second), second * 10.0) for second in range(0, 600, 5)]
    drawn = plot(points, "A <name>", texts.rate)
    assert 'aria-label="A &lt;name&gt;: now 6 k/s, at most 6 k/s in the last 10 min"' in drawn
    assert ">10 k/s<" in drawn
    assert drawn.count("<polyline") == 1
    assert "being measured" in plot(points[:1], "name", texts.rate)
    assert small_plot(points, "name", texts.short).count(",") < 100
    assert small_plot([], "name", texts.short) == ""
    assert ">5.0 KiB<" in plot([(0, 0), (1, 3000)], "name", texts.size, 1024)
    assert bars([1, 2, 0], "name", texts.short).count("<rect") == 3
    assert "<svg" in bars([], "name", texts.short)
