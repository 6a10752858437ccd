"""The error codes are those of Kafka's own classes."""

import shutil
from pathlib import Path

import pytest

from pyspark_log.kafka.error_codes import ErrorCode
from tests.kafka.kafka_tools import run

PROGRAM = Path(__file__).with_name("ErrorCodes.java")


@pytest.mark.usefixtures("kafka")
@pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK")
def test_codes_are_kafkas():
    assert run(PROGRAM, memory="512m").splitlines() == [f"{code.name} {code.value}" for code in ErrorCode]
