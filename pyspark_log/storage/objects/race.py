"""Several processes that try to create the same objects at the same time: both ends."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from pyspark_log.storage.objects.objects import Objects

#: How many processes race, and how often.
RACERS, ROUNDS = 8, 50
# How often one tries again after a refusal that has left no object.
_TRIES = 20


class Outcome(NamedTuple):
    """What one process has seen of a race.

    Attributes:
        is_created: whether the answer was that its object is there now.
        seen: the object that it has read afterwards; "": none, after many tries.
    """

    is_created: bool
    seen: str


def faulty_races(objects: Objects, prefix: str) -> int:
    """In how many of ROUNDS races among RACERS processes not exactly one won: none should be.

    Raises:
        ChildProcessError: a process has ended; what it said is on standard error.
    """
    return sum(_is_faulty(outcomes) for outcomes in _races(objects, prefix, ROUNDS))


def _is_faulty(outcomes: Sequence[Outcome]) -> bool:
    seen = {one.seen for one in outcomes}
    winners = [number for number, one in enumerate(outcomes) if one.is_created]
    # The winner may not know it, if its answer was lost; but two never think that they are.
    return len(seen) != 1 or seen == {""} or any(str(number) not in seen for number in winners)


def _races(objects: Objects, prefix: str, rounds: int) -> Iterator[list[Outcome]]:
    """The outcomes of each round, of process 0, 1, ...: process N tries to create an object with the text `N`.

    Raises:
        ChildProcessError: a process has ended; what it said is on standard error.
    """
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(_racer(objects, number)) for number in range(RACERS)]
        for pipes in racers:
            _answer(pipes)  # it has started
        for number in range(rounds):
            for _, requests in racers:
                requests.write(f"{prefix}/race-{number:05}\n")
                requests.flush()
            yield [Outcome(*_answer(pipes)) for pipes in racers]


@contextlib.contextmanager
def _racer(objects: Objects, number: int) -> Iterator[tuple[IO[str], IO[str]]]:
    # The same search path, so that the same package is found in a clone, too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which ends the others.
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        # Not as arguments: options may be secrets, and every user sees those.
        process.stdin.write(json.dumps([str(objects.address), objects.options, str(number)]) + "\n")
        process.stdin.flush()
        yield process.stdout, process.stdin
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()


def _answer(pipes: tuple[IO[str], IO[str]]) -> Sequence[Any]:
    line = pipes[0].readline()
    if not line:
        raise ChildProcessError("one of the processes of the race has ended; its output is above")
    found: Sequence[Any] = json.loads(line)
    return found


def serve() -> None:
    """Takes part in races, whose objects are named on standard input, until that ends."""
    url, options, text = json.loads(sys.stdin.readline())
    objects = Objects(url, options)
    # The connection is made before the first race.
    objects.get("nothing")
    _reply([])
    for line in sys.stdin:
        _reply(_take_part(objects, line.strip(), text))


def _take_part(objects: Objects, key: str, text: str) -> Outcome:
    for _ in range(_TRIES):
        is_created = objects.create(key, text.encode())
        found = objects.get(key)
        if is_created or found is not None:
            return Outcome(is_created, "" if found is None else bytes(found.data).decode(errors="replace"))
    return Outcome(is_created=False, seen="")


def _reply(reply: Sequence[Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
