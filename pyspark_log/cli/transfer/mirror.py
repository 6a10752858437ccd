"""`pylog mirror`: topics of a Kafka cluster, a broker's folders or a store, byte for byte."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import NOTHING, ProgressBar, human_size, print_json, print_table, source_of, warn
from pyspark_log.cli.target import Target
from pyspark_log.cli.transfer.client_option import read_client_config
from pyspark_log.cli.transfer.mirror_options import mirror_options
from pyspark_log.repeated_lines import standard_error
from pyspark_log.types import READ_COMMITTED, TopicPartition

if TYPE_CHECKING:
    from pyspark_log.mirror import MirrorPlan, MirrorResult

_INSTEAD = (
    "Mirror into a store in a folder, and copy that to a new URL with `pylog backup --into URL`; or use the job "
    "mirror, which writes records to any store."
)


@click.command()
@click.argument("source", required=False)
@mirror_options
@click.option(
    "--keep",
    is_flag=True,
    help="Keep records that retention or an administrator deletes in SOURCE; new topics get retention.ms=-1.",
)
@click.option(
    "--follow-truncation",
    is_flag=True,
    help="Replace records here that an unclean election has replaced in SOURCE; otherwise that ends the mirror of "
    "the partition.",
)
@click.option(
    "--promote",
    is_flag=True,
    help="End the mirror of the topics, which anything may write to from then on: without SOURCE, or with --until-now "
    "once all is there.",
)
@click.pass_obj
def mirror(
    target: Target, source: str | None, topics: Sequence[re.Pattern[str]], until_now: bool,
    groups: re.Pattern[str] | None, client_config: str | None, keep: bool, skip_lost: bool, follow_truncation: bool,
    promote: bool, as_json: bool,
) -> None:  # fmt: skip
    """Mirror topics of SOURCE into the store, byte for byte.

    SOURCE is a Kafka cluster (kafka://HOST:PORT, or several brokers to begin with: kafka://HOST:PORT,HOST:PORT), a
    folder of the log.dirs of a Kafka broker, which may be running (several with commas in between), or another store in
    a folder. Record batches, offsets, leader epochs, ids and configs of topics are those of SOURCE (a broker's folder
    has no configs: new topics get retention.ms=-1); a mirror that is started again continues where the store ends.
    Spark and all of pylog read the topics meanwhile; only SOURCE writes to them. Where SOURCE has other records than
    before, or is damaged, the mirror of that partition ends with an error, and changes nothing.
    """
    if promote and source is None:
        _promote(target, topics, as_json=as_json)
        return
    if promote and not until_now:
        raise click.UsageError("--promote ends a mirror: give it without SOURCE, or with --until-now.")
    if source is None:
        raise click.UsageError("Which source? Give kafka://HOST:PORT, or a folder.")
    with interrupts.fatal():
        from pyspark_log.mirror import MirrorPlan  # noqa: PLC0415  (only this command needs it)
        from pyspark_log.replication import Rules  # noqa: PLC0415
    plan = MirrorPlan(topics, groups, until_now, Rules(keep, skip_lost, follow_truncation))
    results, is_interrupted = _run(target, source, client_config, plan)
    _show(results, as_json=as_json)
    if failed := [result for result in results if result.error is not None]:
        first = failed[0].error
        raise click.ClickException(f"{len(failed)} of {len(results)} are not mirrored any further: {first}")
    if is_interrupted:
        click.get_current_context().exit(interrupts.INTERRUPTED)
    if promote:
        _promote(target, topics, as_json=as_json)


def _run(
    target: Target, place: str, client_config: str | None, plan: MirrorPlan
) -> tuple[Sequence[MirrorResult], bool]:
    """Mirrors a source; what was done, and whether Ctrl-C has ended it."""
    with interrupts.fatal():
        from pyspark_log.mirror import ClusterSource, Mirror, open_folder  # noqa: PLC0415
    config = read_client_config(client_config)
    store = target.open_folder_or_create(_INSTEAD)
    source = source_of(place, cluster=partial(ClusterSource, config=config), store=partial(open_folder, target=store))
    logging.basicConfig(
        handlers=[standard_error()],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    signals = list[int]()
    with contextlib.closing(source), ProgressBar("mirror", "records", after=1) as progress:
        running = Mirror(store, source, plan, progress)

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
    return results, signal.SIGINT in signals


def _show(results: Sequence[MirrorResult], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(result) for result in results])
    else:
        print_table(("PARTITION", "START", "FROM", "END", "COPIED", "STATE"), map(_row, results))


def _is_refused(result: MirrorResult) -> bool:
    """Whether it is of a topic that was not begun."""
    return result.at.partition < 0


def _document(result: MirrorResult) -> dict[str, object]:
    numbers = {
        "partition": result.at.partition,
        "begun_at": result.begun_at,
        "log_start": result.log_start,
        "log_end": result.end,
        "bytes": result.bytes,
        "missing": result.missing,
    }
    shown = dict.fromkeys(numbers) if _is_refused(result) else numbers
    return {"topic": result.at.topic, **shown, "error": None if result.error is None else str(result.error)}


def _row(result: MirrorResult) -> tuple[object, ...]:
    if _is_refused(result):
        return result.at.topic, NOTHING, NOTHING, NOTHING, NOTHING, f"refused: {result.error}"
    state = "ended" if result.error else ""
    return str(result.at), result.log_start, result.begun_at, result.end, human_size(result.bytes), state


def _promote(target: Target, topics: Sequence[re.Pattern[str]], *, as_json: bool) -> None:
    """Ends the mirror of topics."""
    from pyspark_log.replication import promote  # noqa: PLC0415

    store = target.open_folder()
    names = [name for name in store.topics() if any(pattern.fullmatch(name) for pattern in topics)]
    if not names:
        raise click.UsageError("The store has no topic of such a name.")
    for name in names:
        for number in store.written_partitions(name):
            at = TopicPartition(name, number)
            stable, end = store.latest_offset(name, number, isolation_level=READ_COMMITTED), promote(store, at)
            click.echo(f"{at} ends at offset {end}, and is no mirror any more", err=as_json)
            if stable < end:
                warn(
                    f"{at}: a transaction is open since offset {stable}, and no producer can end it here; "
                    "read_committed readers stop there"
                )
    store.close()
