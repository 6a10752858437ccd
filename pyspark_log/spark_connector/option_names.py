"""Which options of a read or a write are known, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.connector_options import KNOWN_OPTIONS, READ_OPTIONS, WRITE_OPTIONS, concerns_brokers, meant_by
from pyspark_log.near_names import one_edit_apart
from pyspark_log.spark_connector.errors import option_error

# What Spark adds for a table in its catalog.
_OF_TABLES = ("owner", "provider", "location", "option.")
# Checked where they are used.
_OF_REGISTRY = "schemaregistry."


def refuse_misspelled(names: Iterable[str]) -> None:
    """Refuses a name that is one letter from a known one: without it the job would do something else.

    Args:
        names: in lower case.

    Raises:
        ConnectorError: with the name that is meant.
    """
    for name in _others(names):
        meant = next((known for lower, known in KNOWN_OPTIONS.items() if one_edit_apart(name, lower)), None)
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
        meant = meant_by(name, known)
        said.append(name if meant is None else f"{name} (is {meant} meant?)")
    return [f"without effect here: {', '.join(said)}"] if said else []


def _others(names: Iterable[str]) -> list[str]:
    return sorted(
        name
        for name in names
        if name not in KNOWN_OPTIONS and not concerns_brokers(name) and not name.startswith((*_OF_TABLES, _OF_REGISTRY))
    )
