"""Messages are the bytes that Kafka's own classes write, in each version; and what is stored of schemas is Kafka's."""

import json
import shutil
from pathlib import Path

import pytest

from pyspark_log.kafka.wire import decode, encode
from tests.kafka import schemas_of_jar
from tests.kafka.kafka_tools import run
from tests.message_values import Values, all_versions, joined

pytestmark = pytest.mark.usefixtures("kafka")

PROGRAM = Path(__file__).with_name("MessageBytes.java")


def test_what_is_stored_is_what_the_jar_has():
    assert [str(path) for path, text in schemas_of_jar.files().items() if path.read_text() != text] == []


@pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK")
def test_each_version_is_written_as_kafka_writes_it():
    cases = []
    for name, version in all_versions():
        values = Values(name, version)
        cases += [(values, one) for one in (values.default(), *(values.any() for _ in range(8)))]
    written = of_kafka(cases)
    for (values, value), expected in zip(cases, written, strict=True):
        plan = values.message.plan(values.version)
        where = f"{values.message.name} {values.version}: {value}"
        assert joined(encode(None, None, plan, value)).hex() == expected, where
        assert decode(plan, bytes.fromhex(expected), 0) == (value, len(expected) // 2), where


def of_kafka(cases):
    """What Kafka writes of values: lines of hexadecimal digits."""
    return bytes_of(
        [f"{class_of(values.message)} {values.version} {json.dumps(values.json(value))}\n" for values, value in cases]
    )


def bytes_of(lines, program=PROGRAM):
    """The answers of MessageBytes.java, or of another program."""
    return run(program, text="".join(lines), memory="512m").splitlines()


def class_of(message):
    """Kafka's class of a message."""
    return message.name if message.name.startswith("ConsumerProtocol") else f"{message.name}Data"
