"""Which options of a read or a write are known, and what is said of the others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyspark_log.connector_options import READ_OPTIONS, WRITE_OPTIONS
from pyspark_log.near_names import one_edit_apart
from pyspark_log.spark_connector.errors import option_error

# They concern the way to a broker, and every job that is moved here has some.
_OF_BROKERS = ("kafka.bootstrap.servers", "kafkaconsumer.polltimeoutms")
_OF_CONNECTIONS = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
# What Spark adds for a table in its catalog.
_OF_TABLES = ("owner", "provider", "location", "option.")
# What Kafka's own clients call it, and what is found in jobs that others wrote.
_MEANT = {
    "auto.offset.reset": "startingOffsets",
    "group.id": "kafka.group.id",
    "kafka.consumer.commit.groupid": "kafka.group.id",
    "kafka.consumer.group.id": "kafka.group.id",
}
# A temporary view has the options of its reads and of its writes, so either is known to both.
_KNOWN = {name.lower(): name for name in (*READ_OPTIONS, *WRITE_OPTIONS)}


def refuse_misspelled(names: Iterable[str]) -> None:
    """Refuses a name that is one letter from a known one: without it the job would do something else.

    Args:
        names: in lower case.

    Raises:
        ConnectorError: with the name that is meant.
    """
    for name in _others(names):
        meant = next((known for lower, known in _KNOWN.items() if one_edit_apart(name, lower)), None)
        if meant is not None:
            raise option_error(f"there is no option {name}: is {meant} meant?")


def without_effect(names: Iterable[str], *, write: bool = False) -> list[str]:
    """What to warn of, in one line: the options that have no effect, and which ones may be meant. Else nothing.

    Args:
        names: in lower case.
        write: whether they are those of a write.
    """
    known = {name.lower(): name for name in (WRITE_OPTIONS if write else READ_OPTIONS)}
    said = []
    for name in _others(names):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        meant = _MEANT.get(name) or (known[near[0]] if near else None)
        said.append(name if meant is None else f"{name} (is {meant} meant?)")
    return [f"without effect here: {', '.join(said)}"] if said else []


def _others(names: Iterable[str]) -> list[str]:
    return sorted(
        name
        for name in names
        if name not in _KNOWN and name not in _OF_BROKERS and not name.startswith((*_OF_CONNECTIONS, *_OF_TABLES))
    )
