"""The error codes of responses are found, however deep they are."""

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas import message_of
from tests.message_values import Values, all_versions

RESPONSES = [(name, version) for name, version in all_versions() if name.endswith("Response")]


def errors_in(value):
    return message_of(value).errors_in(value)


def codes(value):
    """All values of fields of that name, in any order."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        own = [value.error_code] if "error_code" in value._fields and value.error_code else []
        return [*own, *(code for field in value for code in codes(field))]
    return [code for one in value for code in codes(one)] if isinstance(value, (list, tuple)) else []


@pytest.mark.parametrize(("name", "version"), RESPONSES)
def test_any_response(name, version):
    values = [Values(name, version, seed, small=True).any() for seed in range(5)]
    for value in values:
        assert sorted(errors_in(value)) == sorted(codes(value))


def test_what_there_is_no_error_in():
    topic = m.ProduceResponse.TopicProduceResponse("t", partition_responses=[
        m.ProduceResponse.PartitionProduceResponse(0, 0, 5), m.ProduceResponse.PartitionProduceResponse(1, -1, 5),
    ])  # fmt: skip
    assert errors_in(m.ProduceResponse([topic])) == [-1]
    assert errors_in(m.MetadataResponse(topics=None)) == []
