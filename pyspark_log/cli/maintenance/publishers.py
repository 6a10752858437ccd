"""`pylog publishers`: lists the publishers of a store, and their last numbers."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyspark_log.cli.support import NOTHING, CommandGroup, confirm, json_option, print_json, print_table, yes_option
from pyspark_log.cli.target import Target
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.publish import Decision
from pyspark_log.storage.publish.decision import NO_NUMBER, Origin
from pyspark_log.storage.store import Store


@click.group(cls=CommandGroup)
def publishers() -> None:
    """List, describe and delete publishers: streaming queries, and transactions of Python's Producer.

    A batch write with a publishId is a publisher, too. Transactions of Kafka's clients are known to `pylog serve`:
    kafka-transactions.sh and its page list them.
    """


@publishers.command("list")
@json_option
@click.pass_obj
def list_publishers(target: Target, as_json: bool) -> None:
    """Print each publisher with its last number, the run that owns it, and whether that publish is applied."""
    found = target.open().publishes.publishers()
    if as_json:
        print_json([_document(one) for one in found])
        return
    print_table(("PUBLISHER", "NUMBER", "QUERY", "RUN", "STATUS", "TIME"), [
        (
            one.publisher, NOTHING if one.number == NO_NUMBER else one.number, one.about.query or NOTHING,
            one.run or NOTHING, _status(one), format_time(one.time),
        )
        for one in found
    ])  # fmt: skip


@publishers.command()
@click.argument("names", metavar="PUBLISHER...", nargs=-1, required=True)
@json_option
@click.pass_obj
def describe(target: Target, names: Sequence[str], as_json: bool) -> None:
    """Print everything known about each PUBLISHER."""
    store = target.open()
    found = [_find(store, name) for name in names]
    if as_json:
        print_json([_document(one) for one in found])
        return
    for number, one in enumerate(found):
        if number:
            click.echo()
        for name, value in _document(one).items():
            click.echo(f"{name.replace('_', ' ')}: {_format_value(name, value)}")


@publishers.command()
@click.argument("name", metavar="PUBLISHER")
@yes_option
@click.pass_obj
def delete(target: Target, name: str, yes: bool) -> None:
    """Forget PUBLISHER, as if it had never published. The records it published stay.

    If a query restarts with that id, it starts over: the batch it repeats is published a second time, and no run is
    fenced. So delete only publishers that will not come back. Refused while the last decision is not applied.
    """
    store = Store.open(target.store_path())
    last = _find(store, name)
    confirm(
        f"Publisher {name} is at number {last.number} ({format_time(last.time)}). If a query uses that id again, it "
        "starts over, and the batch it repeats is published twice. Delete the publisher?",
        yes,
    )
    last = store.publishes.delete_publisher(name)
    click.echo(f"Deleted publisher {name}; its last number was {last.number}.")


def _find(store: Store, name: str) -> Decision:
    for one in store.publishes.publishers():
        if one.publisher == name:
            return one
    raise click.ClickException(f"there is no publisher {name!r} in {store.path}")


def _status(one: Decision) -> str:
    return "done" if one.done else "decided"


def _document(one: Decision) -> dict[str, object]:
    aside = one.set_aside
    return {
        "publisher": one.publisher, "number": None if one.number == NO_NUMBER else one.number, "status": _status(one),
        "decision": one.offset if one.offset >= 0 and one.number != NO_NUMBER else None,
        "time": one.time, "decided_by": _origin(Origin(one.host, one.process, one.time)), "records": one.records,
        "partitions": [f"{place.topic}-{place.partition}" for place in one.places],
        "query": one.about.query or None, "checkpoint": one.about.checkpoint or one.location or None,
        "reads": list(one.about.reads), "writes": list(one.about.writes), "plan": one.plan or None,
        "run": one.run or None, "held_by": _origin(one.holder), "replaced_runs": list(one.replaced),
        "manifest": one.manifest or None, "single_publish": one.one_off,
        "set_aside": None if aside is None else {
            "decision": aside.decision, "number": aside.number, "by": _origin(aside.origin),
            "partitions": [f"{place.topic}-{place.partition}" for place in aside.places],
        },
    }  # fmt: skip


def _origin(origin: Origin) -> dict[str, object] | None:
    return dict(origin._asdict()) if origin.host else None


def _format_value(name: str, value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{part.replace('_', ' ')} {_format_value(part, of)}" for part, of in value.items())
    if isinstance(value, list):
        return ", ".join(value) or NOTHING
    if name == "time" and isinstance(value, int):
        return format_time(value)
    return NOTHING if value is None else str(value).lower() if isinstance(value, bool) else value
