"""Appends record batches of clients to a partition."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.errors import PylogError
from pyspark_log.storage.ingest import grouped, validate
from pyspark_log.storage.log import APPEND_BYTES, Appended, Turnstile
from pyspark_log.types import AppendResult


def append_batches(
    target: Turnstile, batches: Sequence[bytes], now: int, *, sync: bool
) -> list[AppendResult | PylogError]:
    """Appends batches of clients; `now` in ms, the rest as `FolderStore.append_batches`."""
    checked = [_check_batch(batch, target, now) for batch in batches]
    accepted = [one for one in checked if not isinstance(one, PylogError)]
    turns = grouped(accepted, min(APPEND_BYTES, target.config.segment_bytes), len)
    appended = iter([outcome for turn in turns for outcome in target.append_in_turn(turn, sync=sync)])
    outcomes = [one if isinstance(one, PylogError) else next(appended) for one in checked]
    return [AppendResult(target.place.partition, *one) if isinstance(one, Appended) else one for one in outcomes]


def append_batch(target: Turnstile, batch: bytes, now: int, *, sync: bool) -> AppendResult:
    """Appends a batch of a client; `now` in ms, the rest as `FolderStore.append_batch`."""
    [outcome] = target.append_in_turn([validate(batch, target.config, now, target.place)], sync=sync)
    if not isinstance(outcome, Appended):
        raise outcome
    return AppendResult(target.place.partition, *outcome)


def _check_batch(batch: bytes, target: Turnstile, now: int) -> bytes | bytearray | PylogError:
    """A client's batch as it is appended, or why it is refused; `now` in ms."""
    try:
        return validate(batch, target.config, now, target.place)
    except PylogError as error:
        return error
