"""Records of a cluster's metadata are the bytes that Kafka's own classes write and read, in each version."""

import json
import shutil
from pathlib import Path

import pytest

from pyspark_log.kafka.records import MetadataRecord, decode_record, encode_record
from tests.kafka.test_message_bytes import bytes_of
from tests.message_values import Values, all_records

pytestmark = pytest.mark.usefixtures("kafka")

PROGRAM = Path(__file__).with_name("RecordBytes.java")


@pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK")
def test_each_version_is_written_and_read_as_kafka_does():
    cases, lines = [], []
    for name, version in all_records():
        values = Values(name, version)
        for value in (values.default(), *(values.any() for _ in range(40))):
            data = encode_record(value, version)
            cases.append((MetadataRecord(name, version, value), data))
            record = json.dumps(values.json(value))
            lines.append(f"{values.message.record_type} {version} {data.hex()} {record}\n")
    for (record, data), answer in zip(cases, bytes_of(lines, PROGRAM), strict=True):
        written, same = answer.split()
        assert written == data.hex(), record
        assert same == "true", record
        assert decode_record(bytes.fromhex(written)) == record
