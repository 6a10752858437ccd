"""`pylog mirror`: topics of a Kafka cluster, byte for byte."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.client_option import client_option, read_client_config
from pyspark_log.cli.support import NOTHING, Address, Pattern, human_size, json_option, print_json, print_table
from pyspark_log.cli.target import Target
from pyspark_log.repeated_lines import standard_error
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.mirror import MirrorResult

_SCHEME = "kafka://"
_INSTEAD = "Mirror into a store in a folder; or use the job mirror, which writes records to any store."


@click.command()
@click.argument("cluster", required=False, metavar="kafka://HOST:PORT")
@click.option(
    "--topics",
    multiple=True,
    required=True,
    type=Pattern(),
    metavar="PATTERN",
    help="Topics whose whole names match this regular expression, such as orders or 'clicks-.*'; repeatable.",
)
@click.option(
    "--until-now", is_flag=True, help="End at what the cluster has now; otherwise run until Ctrl-C or SIGTERM."
)
@click.option(
    "--groups",
    type=Pattern(),
    metavar="PATTERN",
    help="Also copy the committed offsets of groups whose names contain a match, every 10 seconds.",
)
@client_option
@click.option(
    "--keep",
    is_flag=True,
    help="Keep records that retention or an administrator deletes in the cluster; new topics get retention.ms=-1.",
)
@click.option("--skip-lost", is_flag=True, help="Continue even if records were deleted before they were mirrored.")
@click.option(
    "--follow-truncation",
    is_flag=True,
    help="Replace records here that an unclean election has replaced in the cluster; otherwise that ends the mirror of "
    "the partition.",
)
@click.option(
    "--promote",
    is_flag=True,
    help="Instead of mirroring: end the mirror of the topics, which anything may write to from then on.",
)
@json_option
@click.pass_obj
def mirror(
    target: Target, cluster: str | None, topics: Sequence[re.Pattern[str]], until_now: bool,
    groups: re.Pattern[str] | None, client_config: str | None, keep: bool, skip_lost: bool, follow_truncation: bool,
    promote: bool, as_json: bool,
) -> None:  # fmt: skip
    """Mirror topics of a Kafka cluster into the store, byte for byte.

    Record batches, offsets, leader epochs, ids and configs of topics are the cluster's; a mirror that is started again
    continues where the store ends. Spark and all of pylog read the topics meanwhile; only the cluster's clients write
    to them. Where the cluster has other records than before, the mirror of that partition ends with an error, and
    changes nothing. kafka://HOST:PORT,HOST:PORT names several brokers to begin with.
    """
    if promote:
        if cluster is not None:
            raise click.UsageError("--promote needs no cluster: it ends a mirror.")
        _promote(target, topics)
        return
    if cluster is None:
        raise click.UsageError("Which cluster? Give kafka://HOST:PORT.")
    bootstrap = _addresses(cluster)
    with interrupts.fatal():
        from pyspark_log.kafka.cluster import Cluster  # noqa: PLC0415  (only this command needs it)
        from pyspark_log.mirror import Mirror, MirrorPlan  # noqa: PLC0415
        from pyspark_log.replication import Rules  # noqa: PLC0415
    config = read_client_config(client_config)
    store = target.open_folder_or_create(_INSTEAD)
    logging.basicConfig(
        handlers=[standard_error()],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    plan = MirrorPlan(topics, groups, until_now, Rules(keep, skip_lost, follow_truncation))
    signals = list[int]()
    with Cluster(bootstrap, config) as source:
        running = Mirror(store, source, plan)

        def stop(number: int, _frame: FrameType | None) -> None:
            if signals:
                interrupts.leave()
            signals.append(number)
            running.stopping.set()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            results = running.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            store.close()
    _show(results, as_json=as_json)
    if failed := [one for one in results if one.error is not None]:
        first = failed[0].error
        raise click.ClickException(f"{len(failed)} of {len(results)} are not mirrored any further: {first}")
    if signal.SIGINT in signals:
        click.get_current_context().exit(interrupts.INTERRUPTED)


def _addresses(cluster: str) -> list[tuple[str, int]]:
    """The brokers in an address such as kafka://a:9092,b:9092."""
    if not cluster.startswith(_SCHEME):
        raise click.UsageError(f"{cluster!r} is no address of a Kafka cluster, such as kafka://127.0.0.1:9092.")
    kind = Address(9092)
    return [kind.convert(one.strip(), None, None) for one in cluster.removeprefix(_SCHEME).rstrip("/").split(",")]


def _show(results: Sequence[MirrorResult], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(one) for one in results])
    else:
        print_table(("PARTITION", "START", "FROM", "END", "COPIED", "STATE"), map(_row, results))


def _is_refused(one: MirrorResult) -> bool:
    """Whether it is of a topic that was not begun."""
    return one.at.partition < 0


def _document(one: MirrorResult) -> dict[str, object]:
    numbers = {
        "partition": one.at.partition,
        "begun_at": one.begun_at,
        "log_start": one.log_start,
        "log_end": one.end,
        "bytes": one.bytes,
        "missing": one.missing,
    }
    shown = dict.fromkeys(numbers) if _is_refused(one) else numbers
    return {"topic": one.at.topic, **shown, "error": None if one.error is None else str(one.error)}


def _row(one: MirrorResult) -> tuple[object, ...]:
    if _is_refused(one):
        return one.at.topic, NOTHING, NOTHING, NOTHING, NOTHING, f"refused: {one.error}"
    state = "ended" if one.error else ""
    return str(one.at), one.log_start, one.begun_at, one.end, human_size(one.bytes), state


def _promote(target: Target, topics: Sequence[re.Pattern[str]]) -> None:
    """Ends the mirror of topics."""
    from pyspark_log.replication import promote  # noqa: PLC0415

    store = target.open_folder()
    names = [name for name in store.topics() if any(pattern.fullmatch(name) for pattern in topics)]
    if not names:
        raise click.UsageError("The store has no topic of such a name.")
    for name in names:
        for number in store.written_partitions(name):
            at = TopicPartition(name, number)
            click.echo(f"{at} ends at offset {promote(store, at)}, and is no mirror any more")
    store.close()
