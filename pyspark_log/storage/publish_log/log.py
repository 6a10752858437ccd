"""Follows the publish log of a store, and decides.

A decision is one put-if-absent of the next number. If that succeeds, it is decided, applied and visible at that moment,
all of it; if another one has the number, nothing has happened. There is no other primitive, no lock and no clock.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace

from pyspark_log.errors import CorruptRecordError, LogDamagedError, ObjectStoreError, OutcomeUnknownError, PylogError
from pyspark_log.storage.fs import Mutex, side_by_side
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish.decision import Origin
from pyspark_log.storage.publish_log import checkpoint, floors
from pyspark_log.storage.publish_log.entries import sums
from pyspark_log.storage.publish_log.entries.entry import FIRST_BYTES, Entry, decode, encode, name_of, size_of_head
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.state import State

# What to do after an unknown outcome.
_REPEATED = (
    "a publish that is repeated with its number finds out; look for records that were appended before you append them "
    "again"
)

# How often a number is tried whose object is not there after a refusal or an error, and the pause in between, in
# seconds: the library has tried for half a minute each time.
_TRIES, _PAUSE = 5, 0.2
# How often in a row another one may be faster before all that was decided is read.
_DIRECTLY = 3
# After how many entries that were read one by one sums are tried, and how many entries are then read at the same time.
_PATIENCE, _AT_ONCE = 9, 4


class PublishLog:
    """The publish log of a store, as far as this process has read it. Thread-safe.

    Attributes:
        objects: where it is.
        lost: how often another process was faster with a decision.
    """

    def __init__(
        self, objects: Objects, clock: Callable[[], int], on_checkpoint: Callable[[PublishLog], None] | None = None
    ) -> None:
        """Reads nothing yet.

        Args:
            objects: where it is.
            clock: gives the time in ms, which is noted, and decides nothing.
            on_checkpoint: called after every 256th decision by the process that has made it, in the same thread unless
                `watch` says otherwise. It raises nothing.
        """
        self.objects, self._clock, self._on_checkpoint = objects, clock, on_checkpoint
        self.lost = 0
        self._state = State()
        self._is_given = False  # whether a caller of `follow` has the state
        self._heads = list[bytes]()  # of the entries of the last block, as far as they follow each other
        self._mutex = Mutex()
        self._has_begun = False
        self._newest: floors.Moment | None = None  # when a request was made that has shown the state to be the newest
        self._in_vain = -math.inf  # when it was last asked for what others have decided, and there was nothing
        self._looks = threading.local()
        self._on_read: Callable[[str, memoryview], object] | None = None
        self._on_change: Callable[[], object] | None = None
        self._run: Callable[[Callable[[], object]], object] = lambda action: action()
        self._first_bytes = FIRST_BYTES

    def watch(
        self,
        on_read: Callable[[str, memoryview], object],
        on_change: Callable[[], object],
        run: Callable[[Callable[[], object]], object],
        first_bytes: int,
    ) -> None:
        """Has functions called from now on, each in the thread that has followed or decided.

        Args:
            on_read: with the name and the first bytes of each entry that is read or decided. It must not wait.
            on_change: after the state has changed; `follow(inf)` has it.
            run: with what is done for the store after some decisions, which may take long.
            first_bytes: an entry of up to as many, or of this process, comes as a whole, with the records that are in
                it.
        """
        with self._mutex.lock:
            self._on_read, self._on_change, self._run, self._first_bytes = on_read, on_change, run, first_bytes

    def follow(self, age: float = 0.0) -> State:
        """Takes in what was decided since; the state after it, which never changes any more.

        Args:
            age: if this object has looked in vain within so many seconds, it does not look again; nor in a block of
                `looking`, but for its begin.

        Raises:
            ObjectStoreError: the object store does not answer.
            CorruptRecordError, LogDamagedError: an entry is damaged, or contradicts those before it.
        """
        with self._mutex.lock:
            before = self._state.number
            if not self._has_begun or not (getattr(self._looks, "are_done", False) or self._is_young(age)):
                self._follow()
            self._is_given = True
            state = self._state
        if state.number != before and self._on_change is not None:
            self._on_change()
        return state

    def _is_young(self, age: float) -> bool:
        return age > 0 and (age == math.inf or time.monotonic() - self._in_vain <= age)

    @contextlib.contextmanager
    def looking(self, age: float = 0.0) -> Iterator[None]:
        """Follows, and then not again in the block, in this thread: all questions in it cost the requests of one.

        What this object decides in the block is seen in it. `age`, and errors: as `follow`.
        """
        self.follow(age)
        before = getattr(self._looks, "are_done", False)
        self._looks.are_done = True
        try:
            yield
        finally:
            self._looks.are_done = before

    def _follow(self) -> None:
        looked, before = time.monotonic(), self._state.number
        if not self._has_begun:
            self._state = checkpoint.read_last(self.objects)
        patience, self._has_begun = _PATIENCE if self._has_begun else 1, True
        while True:
            # As they are before anything is read: what is read after a sleep may be wrong.
            number, count, moment, damage = self._state.number, self._state.floors, self._now(), None
            try:
                self._take_in(patience)
            except LogDamagedError as error:
                damage = error
            floor = self._floor_after(number, count)
            if floor is None:
                break
            self._begin_again(floor)
            patience = 1
        if damage is not None:
            raise damage
        self._newest = moment
        if self._state.number == before:
            self._in_vain = looked

    def _now(self) -> floors.Moment:
        return floors.Moment.now(self._clock)

    def _has_slept(self) -> bool:
        """Whether it is so long ago that the state was the newest that entries after it may be deleted."""
        return self._newest is None or self._newest.is_long_ago(self._now())

    def _floor_after(self, number: int, count: int) -> floors.Floor | None:
        """The last floor, if it is one at which entries after `number` may be deleted; None: they are all there.

        `count`: how many floors the state after that entry counts.
        """
        floor = floors.last_after(self.objects, count) if self._has_slept() else None
        return floor if floor is not None and floor.number > number else None

    def _begin_again(self, floor: floors.Floor) -> None:
        """Goes to a checkpoint at a floor, or a later one. LogDamagedError: there is none."""
        state = checkpoint.read_last(self.objects)
        if state.number < floor.number:
            found = checkpoint.find(self.objects, floor.number)
            if found is None and (later := floors.last_after(self.objects, floor.place)) is not None:
                self._begin_again(later)
                return
            state = found or checkpoint.read(self.objects, floor.number)
        self._state, self._is_given, self._heads, self._newest = state, False, [], None

    def _take_in(self, patience: int) -> None:
        """Takes in entries until there is no next one; `patience`: after so many, sums are tried."""
        read, without = 0, -1  # without: the block that has no sum
        while True:
            number, found = self._state.number + 1, list[tuple[Entry, bytes]]()
            asked, block = 0, number // sums.BLOCK
            if read >= patience and block != without:
                found, without = sums.read_from(self.objects, number), block
            if not found:
                asked = 1 if read < patience else min(_AT_ONCE, sums.BLOCK - number % sums.BLOCK)
                found, read = self._read_all(range(number, number + asked)), read + asked
            for entry, head in found:
                self._apply(entry, head)
            if len(found) < asked:
                return

    def _apply(self, entry: Entry, head: bytes) -> None:
        if self._is_given:
            self._state, self._is_given = self._state.next(), False
        self._state.apply(entry)
        if entry.number % sums.BLOCK == 0:
            self._heads = []
        self._heads.append(head)

    def _read_all(self, numbers: Sequence[int]) -> list[tuple[Entry, bytes]]:
        """Entries that follow each other, with their heads, at the same time; up to the first that is not decided."""
        there = list[tuple[Entry, bytes]]()
        for one in side_by_side(self._read, numbers, _AT_ONCE):
            if one is None:
                break
            there.append(one)
        return there

    def _read(self, number: int) -> tuple[Entry, bytes] | None:
        """The entry of a number, with its head; None: it is not decided."""
        name = name_of(number)
        found = self.objects.get(name, self._first_bytes)
        if found is None:
            return None
        try:
            size = size_of_head(found.data)
            if size > len(found.data):
                found = self.objects.get(name) or found
            if self._on_read is not None:
                self._on_read(name, found.data)
            return decode(number, found.data), bytes(found.data[:size])
        except CorruptRecordError as error:
            raise error.located(0, f"{self.objects.address}/{name}", "", -1) from None

    def entry(self, number: int) -> Entry | None:
        """An entry as it is stored; None: there is none, or none any more. ObjectStoreError, CorruptRecordError."""
        found = self._read(number)
        return None if found is None else found[0]

    def decide(self, propose: Callable[[State], Proposal | None]) -> Entry | None:
        """Decides what `propose` makes of the current state.

        It is called again, with a newer state, as often as another process is faster; and once more before a refusal
        counts, if the state that it was made from was an older one.

        Args:
            propose: gives what is to be decided; None: nothing is. It raises to refuse, and changes nothing.

        Returns:
            The entry, which is decided; None: nothing was to be.

        Raises:
            OutcomeUnknownError: it is decided or not.
            ObjectStoreError, CorruptRecordError, LogDamagedError: as `follow`; nothing was decided.
            Exception: what `propose` raises.
        """
        entry = self._decide(propose)
        if self._on_change is not None:
            self._on_change()
        on_checkpoint = self._on_checkpoint
        if entry is not None and on_checkpoint is not None and (entry.number + 1) % checkpoint.EVERY == 0:
            self._run(lambda: on_checkpoint(self))
        return entry

    def _decide(self, propose: Callable[[State], Proposal | None]) -> Entry | None:
        token = secrets.token_hex(16)
        with self._mutex.lock:
            if not self._has_begun or self._has_slept():
                self._follow()
            turn = 0
            while True:
                turn += 1
                proposal = self._proposed(propose)
                if proposal is None:
                    return None
                entry = self._entry(proposal, token)
                data = encode(entry, proposal.data)
                # As others will read it: one that they could not take in would be the end of the log.
                entry, moment = decode(entry.number, data), self._now()
                self._state.check(entry)
                is_decided, is_certain, other = self._create(entry, data)
                if is_decided or not is_certain:
                    self._check_floor(entry)
                if is_decided:
                    self._newest = moment
                    if self._on_read is not None:
                        self._on_read(name_of(entry.number), memoryview(data))
                    self._apply(entry, data[: entry.head_size])
                    self._shorten()
                    return entry
                self.lost += 1
                # Mostly there is one entry only: then to look for more takes as long as another decision.
                if other is None or self._has_slept() or turn % _DIRECTLY == 0:
                    self._follow()
                else:
                    self._apply(*other)

    def _check_floor(self, entry: Entry) -> None:
        """Checks that the number of an entry that was, or may have been, created was not deleted before or since."""
        try:
            floor = self._floor_after(entry.number - 1, self._state.floors)
        except (ObjectStoreError, LogDamagedError) as error:
            raise OutcomeUnknownError(f"whether {name_of(entry.number)} counts could not be read: {error}") from error
        if floor is not None:
            # Whatever this process knows may be void: the next call begins with a checkpoint.
            self._has_begun, self._state, self._is_given, self._heads, self._newest = False, State(), False, [], None
            raise OutcomeUnknownError(
                f"{self.objects.address}/{name_of(entry.number)} was created, but this process was stopped for so long "
                f"meanwhile that the entry may have been deleted before, or since; {_REPEATED}"
            )

    def _shorten(self) -> None:
        """Writes what spares other processes to read all entries: a sum after 16 of them, a checkpoint after 256."""
        number = self._state.number + 1
        if number % sums.BLOCK == 0 and len(self._heads) == sums.BLOCK:
            sums.write(self.objects, number - 1, self._heads)
        if number % checkpoint.EVERY == 0:
            checkpoint.write(self.objects, self._state)

    def _proposed(self, propose: Callable[[State], Proposal | None]) -> Proposal | None:
        try:
            proposal = propose(self._state)
        except PylogError:
            before = self._state.number
            self._follow()
            if self._state.number == before:
                raise
            return propose(self._state)
        if proposal is None:
            before = self._state.number
            self._follow()
            return propose(self._state) if self._state.number != before else None
        return proposal

    def _entry(self, proposal: Proposal, token: str) -> Entry:
        number, origin = self._state.number + 1, Origin.here(self._clock())
        publisher = None if proposal.publisher is None else replace(proposal.publisher, offset=number, done=True)
        parts = {part.name: getattr(proposal, part.name) for part in fields(Proposal) if part.name != "data"}
        return Entry(number, token, origin, **parts | {"publisher": publisher})

    def _create(self, entry: Entry, data: bytes) -> tuple[bool, bool, tuple[Entry, bytes] | None]:
        """Tries to make an entry that of its number. OutcomeUnknownError.

        Returns:
            Whether it is; whether all answers came: if not, it may have been for a while; and the entry that is
            instead, with its head.
        """
        name, error = name_of(entry.number), None
        for _ in range(_TRIES):
            try:
                if self.objects.create(name, data):
                    return True, True, None
            except ObjectStoreError as failed:
                if not failed.retriable and error is None:
                    raise
                error = failed  # It may land later; but then with these very bytes.
            # Refused: by another's entry; by this one, whose answer was lost; or by one that was just being written.
            try:
                found = self._read(entry.number)
            except ObjectStoreError as failed:
                error = failed
                break  # Each request was tried for half a minute.
            if found is not None:
                is_own = found[0].token == entry.token
                return is_own, error is None, None if is_own else found
            time.sleep(_PAUSE)
        cause = error or "the object store refuses to create it, as if it were there, and does not find it when read"
        raise OutcomeUnknownError(
            f"{self.objects.address}/{name}: it is not known whether it is decided; {_REPEATED}: {cause}"
        ) from error
