"""Error codes have the numbers and names that kafka-python knows; tests/kafka asks Kafka's own classes."""

import inspect
import warnings

from pyspark_log.kafka.error_codes import ErrorCode

# Where kafka-python does not use Kafka's name.
OTHER_NAMES = {
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
}


def test_codes_have_no_gap():
    assert [code.value for code in ErrorCode] == list(range(-1, 134))


def test_names_are_those_of_kafka_python():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        import kafka.errors  # noqa: PLC0415

    peers = {
        one.errno: OTHER_NAMES.get(one.message, one.message)
        for _, one in inspect.getmembers(kafka.errors, inspect.isclass)
        if isinstance(vars(one).get("errno"), int)
    }
    assert len(peers) > 120
    assert {code: ErrorCode(code).name for code in peers} == peers
