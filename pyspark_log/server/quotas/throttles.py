"""The quotas of clients, what they have used of them, and how long one has to wait whose request was too much."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pyspark_log.errors import InvalidConfigError, PylogError
from pyspark_log.server.documents import Documents, Followed
from pyspark_log.server.quotas.entities import (
    FETCH,
    KINDS,
    MOST_NAME,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    Quotas,
    check_entity,
    check_quota,
)
from pyspark_log.server.quotas.rates import BURST_S, WINDOW_MS, Rate, TokenBucket
from pyspark_log.server.quotas.table import Bound, Table
from pyspark_log.server.security.acls import host_of
from pyspark_log.storage.catalog.store_json import QUOTAS_FILE
from pyspark_log.storage.fs.json_fields import Fields

_log = logging.getLogger(__name__)

_VERSION = 1
# How long a change by another process may stay unseen, in seconds; a look takes some 3 us.
_LOOK = 0.1
# So many are counted each for itself in that time, and further ones together: clients choose their ids.
_MOST_COUNTED, _OTHERS = 10_000, "(others)"
# How often what no longer counts is dropped, in seconds.
_SWEEP = 11.0
# A client waits no longer for its time of threads, or an address for its connections (ms).
_MOST_OF_TIME = WINDOW_MS


class ClientQuotas:
    """The quotas of a store, or of a cluster; safe to use from several threads. Each change of them counts at once."""

    def __init__(self, documents: Documents, source: Followed[Table] | None = None) -> None:
        """Those among the documents of a store; `source`: has them in place of these."""
        self._source: Followed[Table] = source or documents.followed(
            QUOTAS_FILE, "list of quotas", Table({}), _decoded, _encoded
        )

    def table(self) -> Table:
        """The quotas as they are now; the same object until they change. PylogError, OSError: they cannot be read."""
        return self._source.content()

    def change(self, make: Callable[[Quotas], Quotas]) -> None:
        """Replaces the quotas by what `make` makes of them; an entity without any is left out.

        Raises:
            PylogError, OSError: as of Followed.
        """
        self._source.change(
            lambda table: Table({entity: values for entity, values in make(table.quotas).items() if values})
        )


def _encoded(table: Table) -> bytes:
    quotas = [
        {"entity": dict(entity.parts()), "values": dict(sorted(values.items()))}
        for entity, values in sorted(table.quotas.items(), key=lambda one: list(one[0].parts()))
    ]
    return json.dumps({"version": _VERSION, "quotas": quotas}, indent=2).encode() + b"\n"


def _decoded(data: bytes) -> Table:
    content = Fields.parse(data)
    content.check_version(_VERSION, "the list of quotas")
    quotas = {}
    for one in content.list("quotas"):
        fields = Fields(one)
        parts = fields.texts("entity")
        if not parts.keys() <= set(KINDS):
            raise ValueError(f"'entity' has other parts than {', '.join(KINDS)}")
        entity = Entity(*(parts.get(kind) for kind in KINDS))
        quotas[entity] = _checked(entity, fields.numbers("values"))
    return Table(quotas)


def _checked(entity: Entity, values: Mapping[str, float]) -> Mapping[str, float]:
    try:
        check_entity(entity)
        for name, value in values.items():
            check_quota(entity, name, value)
    except InvalidConfigError as error:
        raise ValueError(str(error)) from None
    return values


class Usage(NamedTuple):
    """What one user, client id or both of them use, and are limited in.

    Attributes:
        name: the quota's.
        user, client_id: whose; "": of each one.
        rate: how much a second now.
        bound: how much it may be.
        throttled: requests that were followed by a pause.
        pause_ms: the mean pause after these, of late (ms).
    """

    name: str
    user: str
    client_id: str
    rate: float
    bound: float
    throttled: int
    pause_ms: float


class _Counted:
    __slots__ = ("bound", "pauses", "rate", "throttled", "waits")

    def __init__(self) -> None:
        self.rate, self.bound, self.throttled = Rate(), 0.0, 0
        self.pauses, self.waits = Rate(), Rate()

    def is_over(self, now: int) -> bool:
        return self.rate.is_over(now) and self.waits.is_over(now)


_Key = tuple[str, str, str]


class Throttles:
    """The quotas of a server at work. All calls come from the loop's thread, but those of `mutate`."""

    def __init__(self, quotas: ClientQuotas, clock: Callable[[], float]) -> None:
        """`clock`: gives the seconds of a clock that nothing sets. PylogError, OSError: quotas cannot be read."""
        self._quotas, self._clock = quotas, clock
        self._table = quotas.table()
        self._next_look = self._next_sweep = 0.0
        self._complaint = ""
        self._counted: dict[_Key, _Counted] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._connections: dict[str, Rate] = {}
        self._mutations = threading.Lock()

    @property
    def limit_clients(self) -> bool:
        """Whether anything limits any client; without that `of` need not be asked."""
        return self._looked_at().limits_clients

    def of(self, user: str, client_id: str) -> Throttle | None:
        """The throttle for a request of a client; None: nothing limits it."""
        table = self._looked_at()
        if not table.limits_clients:
            return None
        # A longer one has no quota of its own.
        bounds = table.bounds(user, client_id[: MOST_NAME + 1])
        return Throttle(self, bounds) if bounds else None

    def connection_wait(self, host: str) -> float:
        """How long an address has to wait until it may connect (s); 0: it may now, and that is counted."""
        bound = self._looked_at().connection_rate(host)
        if bound is None:
            return 0
        now = self.now()
        rate = self._connections.setdefault(host_of(host), Rate())
        rate.add(1, now)
        wait = min(rate.excess_ms(bound, now), _MOST_OF_TIME)
        if wait:
            rate.add(-1, now)
        return wait / 1000

    def look_again(self) -> None:
        """Takes a change into account that this process has made."""
        self._next_look = 0.0

    def usages(self) -> Iterator[Usage]:
        """What is used now, by those that are limited."""
        now = self.now()
        for (name, user, client_id), one in self._counted.items():
            waits = one.waits.total(now)
            pause = one.pauses.total(now) / waits if waits else 0
            yield Usage(name, user, client_id, one.rate.measure(now)[0], one.bound, one.throttled, pause)

    def _looked_at(self) -> Table:
        if self._clock() >= self._next_look:
            self._look()
        return self._table

    def _look(self) -> None:
        time = self._clock()
        self._next_look = time + _LOOK
        if time >= self._next_sweep:
            self._next_sweep = time + _SWEEP
            self._sweep()
        try:
            self._table, self._complaint = self._quotas.table(), ""
        except (PylogError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("the quotas stay as they were: %s", error)

    def _sweep(self) -> None:
        """Drops what makes no difference any more."""
        now = self.now()
        self._counted = {key: one for key, one in self._counted.items() if not one.is_over(now)}
        self._connections = {host: rate for host, rate in self._connections.items() if not rate.is_over(now)}
        with self._mutations:
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_full(now)}

    # ---- for `Throttle`

    def now(self) -> int:
        """The time (ms)."""
        return int(self._clock() * 1000)

    def counted(self, name: str, bound: Bound) -> _Counted:
        """What is counted for a quota."""
        key = name, bound.user, bound.client_id
        found = self._counted.get(key)
        if found is None and len(self._counted) >= _MOST_COUNTED:
            key = name, bound.user, _OTHERS
            found = self._counted.get(key)
        if found is None:
            found = self._counted[key] = _Counted()
        found.bound = bound.value
        return found

    def take(self, count: int, bound: Bound, *, strict: bool) -> int:
        """Takes permits as `TokenBucket.take`; from any thread."""
        with self._mutations:
            now = self.now()
            key = bound.user, bound.client_id
            if key not in self._buckets and len(self._buckets) >= _MOST_COUNTED:
                key = bound.user, _OTHERS
            bucket = self._buckets.setdefault(key, TokenBucket(now))
            return bucket.take(count, bound.value, now, strict=strict)


class Throttle:
    """What one request uses, and the pause that follows it.

    Attributes:
        pause_ms: how long nothing more is read from the client (ms).
    """

    __slots__ = ("_bounds", "_mutated", "_name", "_throttles", "pause_ms")

    def __init__(self, throttles: Throttles, bounds: Mapping[str, Bound]) -> None:
        self._throttles, self._bounds = throttles, bounds
        self._name, self.pause_ms, self._mutated = "", 0, 0

    @property
    def most_fetched(self) -> int | None:
        """The most bytes that can ever be fetched at once; None: any number."""
        bound = self._bounds.get(FETCH)
        return None if bound is None else int(bound.value * BURST_S)

    def produced(self, size: int) -> None:
        """The request was to produce, and has this size (bytes)."""
        self._count(PRODUCE, size)

    def fetched(self, size: int) -> bool:
        """The response to a fetch has this size (bytes). Whether it may not be sent: then it does not count."""
        self._count(FETCH, size)
        bound = self._bounds.get(FETCH)
        if self.pause_ms and bound is not None:
            self._throttles.counted(FETCH, bound).rate.add(-size, self._throttles.now())
        return self.pause_ms > 0

    def worked(self, seconds: float) -> None:
        """The request took as much time of threads."""
        # A rate of seconds a second, in percent.
        self._count(REQUEST, seconds * 100, _MOST_OF_TIME)

    def mutate(self, partitions: int, *, strict: bool) -> bool:
        """Partitions are to be made or deleted; from any thread. Whether they may; unless `strict`, they always may."""
        bound = self._bounds.get(MUTATION)
        if bound is None:
            return True
        pause = self._throttles.take(partitions, bound, strict=strict)
        self._pause(MUTATION, pause)
        may = not strict or pause == 0
        self._mutated += partitions if may else 0
        return may

    def forwarded(self, pause_ms: int) -> None:
        """The controllers of the cluster, which the request was forwarded to, have said that there is to be a pause."""
        self._pause(MUTATION if MUTATION in self._bounds else REQUEST, pause_ms)

    def note(self) -> None:
        """Counts for metrics what was not counted for a rate. After all others."""
        now = self._throttles.now()
        if self._mutated:
            self._throttles.counted(MUTATION, self._bounds[MUTATION]).rate.add(self._mutated, now)
        bound = self._bounds.get(self._name)
        if self.pause_ms and bound is not None:
            one = self._throttles.counted(self._name, bound)
            one.throttled += 1
            one.pauses.add(self.pause_ms, now)
            one.waits.add(1, now)

    def _count(self, name: str, amount: float, most_ms: int | None = None) -> None:
        bound = self._bounds.get(name)
        if bound is None:
            return
        now, rate = self._throttles.now(), self._throttles.counted(name, bound).rate
        rate.add(amount, now)
        pause = rate.excess_ms(bound.value, now)
        self._pause(name, pause if most_ms is None else min(pause, most_ms))

    def _pause(self, name: str, pause_ms: int) -> None:
        if pause_ms > self.pause_ms:
            self.pause_ms, self._name = pause_ms, name
