"""The examination of an object store: does it keep what the engine builds on?"""

from __future__ import annotations

import importlib.metadata
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pyspark_log.errors import InvalidConfigError, PylogError
from pyspark_log.storage.maintenance.doctor.check import RefutedError, Remark, expect
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.objects.race import RACERS, ROUNDS, faulty_races

# How often what is written is read at once.
_ROUNDS = 20
_SMALL = b"x" * 1024
# A decision takes about as long as a put; a store decides little more than one at a time.
_SLOW_MS = 500.0


class _Check(NamedTuple):
    """A check and its words; it gets the objects, and a prefix of its own."""

    name: str
    good: str
    bad: str
    run: Callable[[Objects, str], str | Remark]


def examine_objects(url: str, options: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Tests the object store that a URL names.

    All objects are below a prefix of their own, `.pylog-doctor-...`, and are deleted.

    Args:
        url: of a store, or where one is to be.
        options: as those of Objects.

    Yields:
        The findings, as they are made; none after the first requirement that is not met.
    """
    try:
        objects = Objects(url, options)
        version = importlib.metadata.version("obstore")
    except InvalidConfigError as error:
        yield Finding("address", Verdict.FAILED, str(error), "the object store cannot be used")
        return
    yield Finding("obstore", Verdict.OK, version, "the library that makes the requests")
    prefix = f".pylog-doctor-{secrets.token_hex(8)}"
    try:
        for check in _CHECKS:
            finding = _conduct(check, objects, f"{prefix}/{check.name.replace(' ', '-')}")
            yield finding
            if finding.verdict is Verdict.FAILED:
                return
    finally:
        _tidy_up(objects, prefix)


def _conduct(check: _Check, objects: Objects, prefix: str) -> Finding:
    try:
        outcome = check.run(objects, prefix)
    except RefutedError as refuted:
        return Finding(check.name, Verdict.FAILED, str(refuted), check.bad)
    except (OSError, PylogError) as error:
        return Finding(check.name, Verdict.FAILED, f"{type(error).__name__}: {error}", check.bad)
    if isinstance(outcome, Remark):
        return Finding(check.name, Verdict.WARNING, outcome.measured, outcome.meaning)
    return Finding(check.name, Verdict.OK, outcome, check.good)


def _tidy_up(objects: Objects, prefix: str) -> None:
    try:
        objects.delete([one.key for one in objects.list(prefix)])
    except (OSError, PylogError):
        return  # The finding about permissions has it.


def _is_permitted(objects: Objects, prefix: str) -> str:
    key = f"{prefix}/object"
    objects.put(key, b"x")
    found = objects.get(key)
    expect(found is not None and bytes(found.data) == b"x", "an object that was put is not there")
    objects.get_ranges(key, [(0, 1)])
    expect([one.key for one in objects.list(prefix)] == [key], "an object that was put is in no list")
    objects.delete([key])
    expect(objects.get(key) is None, "an object that was deleted is still there")
    return "put, get, list and delete work"


def _is_read_after_write(objects: Objects, prefix: str) -> str:
    for number in range(_ROUNDS):
        key = f"{prefix}/{number}"
        # That it was not there must not be remembered: a cache in front of the object store would.
        expect(objects.get(key) is None, "an object is there before it was put")
        for text in (b"first", b"second"):
            objects.put(key, text)
            found = objects.get(key)
            expect(found is not None and bytes(found.data) == text, f"after a put of {text!r} a get has found {found}")
        expect(key in {one.key for one in objects.list(prefix)}, "an object that was put is in no list")
        objects.delete([key])
        expect(objects.get(key) is None, "an object that was deleted is still read")
    return f"{_ROUNDS} objects were read, listed and missed at once after each change"


def _is_condition_kept(objects: Objects, prefix: str) -> str:
    key = f"{prefix}/object"
    expect(objects.create(key, b"first"), "an object could not be created where none is")
    is_created = objects.create(key, b"second")
    found = objects.get(key)
    expect(not is_created, "an object was created where one is: the server ignores If-None-Match")
    expect(found is not None and bytes(found.data) == b"first", "a refused object has replaced the one that was there")
    return "an object is not replaced by a create"


def _one_wins(objects: Objects, prefix: str) -> str:
    faulty = faulty_races(objects, prefix)
    expect(not faulty, f"{faulty} of {ROUNDS} races of {RACERS} processes had more than one winner, or none")
    return f"{ROUNDS} races of {RACERS} processes had one winner each"


def _times(objects: Objects, prefix: str) -> str | Remark:
    measured: dict[str, Callable[[int], object]] = {
        "put": lambda number: objects.put(f"{prefix}/{number}", _SMALL),
        "create": lambda number: objects.create(f"{prefix}/created-{number}", _SMALL),
        "get": lambda number: objects.get(f"{prefix}/{number}"),
        "list": lambda _: list(objects.list(f"{prefix}/none")),
    }
    texts, middle = [], 0.0
    for name, request in measured.items():
        times = []
        for number in range(_ROUNDS):
            started = time.perf_counter()
            request(number)
            times.append((time.perf_counter() - started) * 1e3)
        times.sort()
        texts.append(f"{name} {times[_ROUNDS // 2]:.1f} / {times[-1]:.1f}")
        if name == "create":
            middle = times[_ROUNDS // 2]
    text = f"half and most of {_ROUNDS}, ms: {', '.join(texts)}"
    if middle > _SLOW_MS:
        return Remark(text, "it works, and each publish takes at least as long as a create")
    return text


_CHECKS = (
    _Check(
        "permissions",
        "all requests that a store needs are allowed",
        "the credentials must allow to put, get, list and delete objects below the prefix",
        _is_permitted,
    ),
    _Check(
        "read after write",
        "what is written is seen by all at once",
        "a cache or a replica is in between: readers would miss what is decided; name the object store itself",
        _is_read_after_write,
    ),
    _Check(
        "create",
        "a decision is made once",
        "no store can be kept here: two writers would both believe that they have decided",
        _is_condition_kept,
    ),
    _Check(
        "race",
        "also when several processes decide at the same time",
        "no store can be kept here: the server looks for an object and then writes it, in two steps; a newer version "
        "of it may be right",
        _one_wins,
    ),
    _Check("latency", "a publish takes a create or two", "no request may fail", _times),
)
