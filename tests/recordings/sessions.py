"""The sessions that are recorded: a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.recordings import confluent_sessions as confluent
from tests.recordings import java_sessions as java
from tests.recordings import program_sessions as programs
from tests.recordings import python_sessions as python


class Session(NamedTuple):
    """What a client does.

    Attributes:
        client: its name and version.
        run: does it, given a `Place`.
    """

    client: str
    run: Callable


def _of(client, function, *arguments, **named):
    return Session(client, lambda place: function(place, *arguments, **named))


#: By name, which is that of the recording's file.
SESSIONS = {
    "confluent-produce": _of(confluent.VERSION, confluent.produce, False),
    "confluent-produce-idempotent": _of(confluent.VERSION, confluent.produce, True),
    "confluent-resume": _of(confluent.VERSION, confluent.resume, group_protocol="classic"),
    "confluent-resume-modern": _of(confluent.VERSION, confluent.resume, group_protocol="consumer"),
    # A member with a name of its own leaves and comes back.
    "confluent-static": _of(confluent.VERSION, confluent.resume, looks=False, group_instance_id="one"),
    "confluent-rebalance": _of(confluent.VERSION, confluent.rebalance),
    "confluent-rebalance-cooperative": _of(
        confluent.VERSION, confluent.rebalance, partition_assignment_strategy="cooperative-sticky"
    ),
    "confluent-rebalance-modern": _of(confluent.VERSION, confluent.rebalance, group_protocol="consumer"),
    "confluent-seek": _of(confluent.VERSION, confluent.seek),
    "confluent-administer": _of(confluent.VERSION, confluent.administer),
    "confluent-administer-groups": _of(confluent.VERSION, confluent.administer_groups),
    "confluent-create-when-missing": _of(confluent.VERSION, confluent.create_when_missing),
    "confluent-patterns": _of(confluent.VERSION, confluent.patterns),
    "confluent-mistakes": _of(confluent.VERSION, confluent.mistakes),
    "kafka-python-produce": _of(python.KAFKA_PYTHON, python.produce, False),
    "kafka-python-produce-idempotent": _of(python.KAFKA_PYTHON, python.produce, True),
    "kafka-python-resume": _of(python.KAFKA_PYTHON, python.resume),
    "kafka-python-patterns": _of(python.KAFKA_PYTHON, python.patterns),
    "kafka-python-rebalance": _of(python.KAFKA_PYTHON, python.rebalance),
    "kafka-python-administer": _of(python.KAFKA_PYTHON, python.administer),
    "aiokafka-produce": _of(python.AIOKAFKA, python.aio_produce, False),
    "aiokafka-produce-idempotent": _of(python.AIOKAFKA, python.aio_produce, True),
    "aiokafka-resume": _of(python.AIOKAFKA, python.aio_resume),
    "aiokafka-rebalance": _of(python.AIOKAFKA, python.aio_rebalance),
    "aiokafka-administer": _of(python.AIOKAFKA, python.aio_administer),
    "java-console": _of(java.VERSION, java.console, "classic"),
    "java-console-modern": _of(java.VERSION, java.console, "consumer"),
    "java-rebalance": _of(java.VERSION, java.rebalance, "classic"),
    "java-rebalance-modern": _of(java.VERSION, java.rebalance, "consumer"),
    "java-topics": _of(java.VERSION, java.topics),
    "java-configs": _of(java.VERSION, java.configs),
    "java-groups": _of(java.VERSION, java.groups),
    "java-offsets": _of(java.VERSION, java.offsets),
    "java-inspect": _of(java.VERSION, java.inspect),
    "java-reassign": _of(java.VERSION, java.reassign),
    "java-performance": _of(java.VERSION, java.perform),
    "java-verifiable": _of(java.VERSION, java.verify),
    "java-cluster": _of(java.VERSION, java.cluster),
    "kafka-streams": _of(java.VERSION, java.streams),
    **{name: _of(f"{name} of tests/clients", programs.use, name) for name in programs.PROGRAMS},
}
