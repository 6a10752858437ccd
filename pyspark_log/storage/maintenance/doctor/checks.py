"""The checks: each tests one thing that the engine needs of a file system.

A check raises RefutedError if it observed a violation, and OSError if the file system refuses; otherwise it returns
what it measured. The tables at the end state the purpose of each.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from statistics import median

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance.doctor.check import Bench, Check, Remark, expect
from pyspark_log.storage.maintenance.doctor.operations import Operations, Side, slot_state, try_flock
from pyspark_log.storage.maintenance.doctor.second_process import SecondProcess

#: How long the other process works on a file while this one does, in seconds.
TOGETHER_SECONDS = 0.3
#: How long it repeats that, or is waited for, where the machine gives one of both no turn; less than an answer may
#: take (second_process.py).
PATIENCE_SECONDS = 5.0
#: How soon the lock of a killed process must be free, in seconds.
RELEASE_SECONDS = 5.0
#: How soon written bytes must be seen by a reader that takes no lock, in seconds. NFS may show a file as it was for
#: up to a minute (acregmax).
SEEN_SECONDS = 70.0

_SLOW_SIGHT_MS = 1000.0
_SLOW_SYNC_MS = 30.0
_TIMES = 21
_RACES = 200
_BLOCK = 1000


# ---- locks


def exclusive_lock(bench: Bench) -> str:
    """One lock, two processes, both ways round; a reader without a lock is not kept out."""
    _make(bench, "lock", b"read")
    # The other side first, here and in the next checks: if no lock service answers, it hangs and not this process.
    sides: list[tuple[Side, Side]] = [(bench.other, bench.mine), (bench.mine, bench.other)]
    for holder, rival in sides:
        expect(holder.ask("try_lock", "lock"), "a free lock was refused")
        expect(not rival.ask("try_lock", "lock"), "two processes held one exclusive lock at once")
        expect(bytes.fromhex(rival.ask("read", "lock", 0, 4)) == b"read", "a locked file could not be read")
        holder.ask("unlock", "lock")
        expect(rival.ask("try_lock", "lock"), "a lock that was released was refused")
        rival.ask("unlock", "lock")
    return f"one holder at a time; {_median_ms(lambda: _lock_once(bench.mine))}"


def _lock_once(mine: Operations) -> None:
    mine.try_lock("lock")
    mine.unlock("lock")


def lock_between_opens(bench: Bench) -> str:
    """A lock belongs to one opening of a file: another one in this process neither shares nor ends it."""
    path = _make(bench, "lock")
    bench.other.ask("try_lock", "lock")
    bench.other.ask("unlock", "lock")
    with files.open_write(path) as first:
        with files.open_write(path) as second:
            expect(try_flock(first), "a free lock was refused")
            expect(not try_flock(second), "two openings of a file in one process both held its lock")
        expect(not bench.other.ask("try_lock", "lock"), "closing a file released the lock of another opening of it")
    return "one holder at a time; closing another opening keeps the lock"


def lock_after_kill(bench: Bench) -> str:
    """The lock of a killed process is free at once."""
    _make(bench, "lock")
    with SecondProcess(bench.folder) as victim:
        expect(victim.ask("try_lock", "lock"), "a free lock was refused")
        expect(not bench.mine.try_lock("lock"), "two processes held one exclusive lock at once")
        victim.kill()
        killed = time.monotonic()
        while not bench.mine.try_lock("lock"):
            waited = time.monotonic() - killed
            expect(waited < RELEASE_SECONDS, f"still locked {RELEASE_SECONDS:.0f} s after its holder was killed")
            time.sleep(0.001)
    return f"free after {(time.monotonic() - killed) * 1000:.0f} ms"


# ---- names


def replacing_rename(bench: Bench) -> str:
    """A reader that opens a file while others are renamed over it finds the old or the new one, whole."""
    size = 64 * 1024
    path, aside = _make(bench, "name", b"-" * size), f"{bench.folder}/name.tmp"
    other = _second_process(bench)
    other.begin("watch", "name", size, TOGETHER_SECONDS, PATIENCE_SECONDS)
    renames = 0
    while not other.is_done():
        with files.create(aside) as file:
            file.pwrite(b"%c" % (renames % 256) * size, 0)
        files.rename(aside, path)
        renames += 1
    seen = other.finish()
    expect(not seen["missing"], f"the file was missing in {seen['missing']} of {seen['reads']} reads")
    expect(not seen["torn"], f"the file was not whole in {seen['torn']} of {seen['reads']} reads")
    expect(seen["contents"] > 1, f"{renames} renames were not seen by another process")
    return f"{renames} renames, {seen['reads']} reads, all whole"


def exclusive_create(bench: Bench) -> str:
    """Of two processes that create the same file, one fails because it exists."""
    names = [f"new-{number}" for number in range(_RACES)]
    other = _second_process(bench)
    other.begin("create_all", names)
    _wait_for(bench.mine.path(names[0]))
    return _one_winner_each(bench.mine.create_all(names), other.finish(), "made")


def exclusive_link(bench: Bench) -> str:
    """A link adds a name to the same file, and never replaces one."""
    path = _make(bench, "linked", b"whole")
    names = [f"link-{number}" for number in range(_RACES)]
    other = _second_process(bench)
    other.begin("link_all", "linked", names)
    _wait_for(bench.mine.path(names[0]))
    measured = _one_winner_each(bench.mine.link_all("linked", names), other.finish(), "linked")
    same = all(os.path.samefile(path, bench.mine.path(name)) for name in names)
    expect(same, "a link is a copy: it does not name the same file")
    return measured


def _wait_for(path: str) -> None:
    """Lets the other process begin: the second one is faster, and so they meet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not os.path.exists(path) and time.monotonic() < deadline:
        pass


def _one_winner_each(mine: list[bool], others: list[bool], done: str) -> str:
    for here, there in zip(mine, others, strict=True):
        expect(here or there, f"a name that was free could not be {done}")
        expect(not (here and there), f"two processes {done} the same name at once")
    return f"{len(mine)} names, each {done} once ({sum(mine)} here, {sum(others)} by the other process)"


# ---- bytes


def file_sync(bench: Bench) -> str | Remark:
    """Syncing a file works; how long it takes."""
    with files.open_write(_make(bench, "synced")) as file:
        positions = iter(range(0, _TIMES * 4096, 4096))

        def write_and_sync() -> None:
            file.pwrite(bytes(4096), next(positions))
            file.sync()

        return _timed_sync(write_and_sync)


def folder_sync(bench: Bench) -> str | Remark:
    """Syncing a folder works; how long it takes."""
    numbers = iter(range(_TIMES))

    def create_and_sync() -> None:
        files.create(f"{bench.folder}/entry-{next(numbers)}").close()
        files.sync_folder(bench.folder)

    if not _syncs_folders(bench.folder):
        return Remark("not supported", "a power loss can remove new files, synced or not")
    return _timed_sync(create_and_sync)


def _syncs_folders(folder: str) -> bool:
    """`files.sync_folder` passes over file systems that have no such call; here it is what is asked for."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    finally:
        os.close(fd)
    return True


def _timed_sync(action: Callable[[], None]) -> str | Remark:
    times = _times_ms(action)
    measured = f"median {median(times):.2f} ms, longest {max(times):.2f} ms"
    if median(times) > _SLOW_SYNC_MS:
        return Remark(measured, "slow: a publish waits for four syncs or more, one after the other")
    return measured


def visibility(bench: Bench) -> str | Remark:
    """One process reads what the other writes: at once under the lock, and soon without it."""
    _make(bench, "seen")
    position, slowest = 0, 0.0
    sides: list[tuple[Side, Side]] = [(bench.other, bench.mine), (bench.mine, bench.other)]
    for writer, reader in sides * 3:
        data = os.urandom(_BLOCK).hex()
        _locked(writer, "write", position, data)
        size = position + _BLOCK
        expect(_locked(reader, "read", position, _BLOCK) == data, "synced bytes were not seen by the next holder")
        expect(reader.ask("size", "seen") == size, "the size of a file was not seen by the next holder of its lock")
        data = os.urandom(_BLOCK).hex()
        writer.ask("write", "seen", position, data)
        slowest = max(slowest, _seen_after_ms(reader, position, data))
        position += _BLOCK
    measured = f"at once under the lock, after {slowest:.0f} ms at most without"
    if slowest > _SLOW_SIGHT_MS:
        return Remark(measured, "readers see new records that much later (NFS: a smaller acregmax shortens it)")
    return measured


def _locked(side: Side, operation: str, position: int, argument: int | str) -> object:
    expect(side.ask("try_lock", "seen"), "a lock that was released was refused")
    result: object = side.ask(operation, "seen", position, argument)
    side.ask("unlock", "seen")
    return result


def _seen_after_ms(reader: Side, position: int, data: str) -> float:
    written = time.monotonic()
    while reader.ask("read", "seen", position, _BLOCK) != data:
        waited = time.monotonic() - written
        expect(waited < SEEN_SECONDS, f"synced bytes were not seen by another process within {SEEN_SECONDS:.0f} s")
        time.sleep(0.001)
    return (time.monotonic() - written) * 1000


def slot_writes(bench: Bench) -> str:
    """A reader of a state file that is written without pause gets whole states, and none older than before."""
    path = f"{bench.folder}/slots"
    state_file.create(path, slot_state(0))
    other = _second_process(bench)
    other.begin("write_slots", "slots", TOGETHER_SECONDS)
    reads = last = 0
    done = False
    while not done:
        done = other.is_done()
        loaded = state_file.read(path)
        expect(loaded is not None, f"{path} is missing")
        assert loaded is not None
        state = loaded.state
        reads += 1
        expected = slot_state(state.next_offset)._replace(seq=state.seq, boot=state.boot)
        expect(state == expected, f"a state made of two passed for a whole one: {state}")
        expect(state.next_offset >= last, f"the end went back from {last} to {state.next_offset}")
        last = state.next_offset
    writes = other.finish()
    expect(last == writes, f"the end is {writes}, and {last} was read")
    return f"{writes} writes, {reads} reads, none torn"


def truncation(bench: Bench) -> str:
    """Truncated bytes are gone for all processes, and a gap after the truncation reads as zeros."""
    with files.open_write(_make(bench, "cut", b"x" * 8192)) as file:
        expect(bench.other.ask("size", "cut") == 8192, "another process saw a wrong size")
        file.truncate(1000)
        expect(bench.other.ask("size", "cut") == 1000, "a cut was not seen by another process")
        expect(bench.other.ask("read", "cut", 0, 8192) == (b"x" * 1000).hex(), "truncated bytes could be read")
        file.pwrite(b"y", 4096)
        gap = bench.other.ask("read", "cut", 1000, 8192)
        expect(gap == (bytes(3096) + b"y").hex(), "bytes that were cut off came back")
    return "8192 bytes truncated to 1000, then written beyond that: as it must be"


def creation_mode(bench: Bench) -> str | Remark:
    """Whether other users of the group can write to files created here."""
    mode = stat.S_IMODE(os.stat(_make(bench, "mode")).st_mode)
    if not mode & stat.S_IWGRP:
        return Remark(
            f"{mode:04o}", "only this user can write to what it makes: if executors run as other users, set umask 002"
        )
    return f"{mode:04o}"


# ---- tools


def _make(bench: Bench, name: str, data: bytes = b"") -> str:
    path = f"{bench.folder}/{name}"
    with files.create(path) as file:
        file.pwrite(data, 0)
        file.sync()
    return path


def _second_process(bench: Bench) -> SecondProcess:
    """For checks in which both sides work concurrently; these run on one host only."""
    assert isinstance(bench.other, SecondProcess)
    return bench.other


def _times_ms(action: Callable[[], None]) -> list[float]:
    times = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return times


def _median_ms(action: Callable[[], None]) -> str:
    return f"median {median(_times_ms(action)):.3f} ms"


_NO_LOCKS = "writers would overwrite each other's records: do not keep a store here"

ONE_HOST = (
    Check("lock between processes", "writers of this host take turns", _NO_LOCKS, exclusive_lock),
    Check("lock between two opens", "a reader does not end its process's lock", _NO_LOCKS, lock_between_opens),
    Check(
        "lock after a kill", "a killed writer delays no other", "a killed writer would stop all others", lock_after_kill
    ),
    Check(
        "rename over a file",
        "topics and configs change in one step",
        "readers would find broken descriptions of topics: do not keep a store here",
        replacing_rename,
    ),
    Check("exclusive create", "two writers never share a new file", _NO_LOCKS, exclusive_create),
    Check(
        "hard link",
        "new files appear whole, and once",
        "topics cannot be made here safely: no store can be kept here",
        exclusive_link,
    ),
    Check("file sync", "synced records survive a power loss", "nothing can be made durable here", file_sync),
    Check("folder sync", "new files survive a power loss", "nothing can be made durable here", folder_sync),
    Check(
        "visibility",
        "readers of this host see new records",
        "readers and writers would miss records: do not keep a store here",
        visibility,
    ),
    Check(
        "state slots",
        "readers need no lock",
        "readers would see a wrong end of the log: do not keep a store here",
        slot_writes,
    ),
    Check("truncation", "what failed is removed", "leftovers of a failed append could come back", truncation),
    Check("file mode", "others of the group can write, too", "files cannot be made here", creation_mode),
)

TWO_HOSTS = (
    Check("lock between hosts", "writers of both hosts take turns", _NO_LOCKS, exclusive_lock),
    Check(
        "visibility between hosts",
        "both hosts see new records",
        "hosts would miss each other's records: do not share a store here",
        visibility,
    ),
)
