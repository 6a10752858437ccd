"""Runs several programs of the engine step by step, in an order that the test chooses, with kills between steps.

Each program is a thread in place of a process: it has a table of locks of its own, and opens its own store. It
stops before each change to files and where it would wait for another's lock. One program runs at a time.
"""

import contextlib
import fcntl
import os
import threading

from pyspark_log.storage.fs.locking import locks
from pyspark_log.storage.fs.locking.locks import Living
from tests.store_tools import Stopped, observed

_current = threading.local()
_flock = locks._flock


class _Tables:
    """The table of locks of the process that runs."""

    def __init__(self):
        self._main = Living()

    def _table(self):
        program = getattr(_current, "program", None)
        return self._main if program is None else program.locks

    def get(self, key):
        return self._table().get(key)

    def put(self, key, lock):
        self._table().put(key, lock)

    def __iter__(self):
        return iter(self._table())


class Program:
    """A program that waits before its first step.

    Attributes:
        at: the change before which it waits; None: it has not begun, or waits for a lock.
        waits: the descriptor of the file whose lock it waits for; -1: it does not wait.
        ended, killed, error: how far it is, and what it has raised.
    """

    def __init__(self, name, work, back):
        self.name, self._work, self._back = name, work, back
        self.locks = Living()
        self.at, self.waits = None, -1
        self.begun = self.ended = self.killed = False
        self.error = None
        self._go = threading.Lock()
        self._go.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self._go.acquire()
        _current.program = self
        try:
            if not self.killed:
                self._work()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  (the test checks it)
            self.error = error
        self.ended, self.at, self.waits = True, None, -1
        self._back.release()

    def stand(self, change=None, waits=-1):
        """Called by its own thread: it waits until it may take its next step."""
        if self.killed:
            raise Stopped
        self.at, self.waits = change, waits
        self._back.release()
        self._go.acquire()
        self.at, self.waits = None, -1
        if self.killed:
            raise Stopped

    def step(self):
        """It runs to its next step, or to its end."""
        self.begun = True
        self._go.release()
        self._back.acquire()

    def kill(self):
        """It makes no change any more, and its locks are free."""
        self.killed = True
        while not self.ended:
            self.step()
        self._thread.join()

    @property
    def ready(self):
        """Whether it can take a step: it has not ended, and what it waits for is free."""
        return not self.ended and (self.waits < 0 or _is_free(self.waits))


def _is_free(fd):
    other = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(other)
    return True


def wait_for(file, *patience):
    """As `locks._flock`, but a program that would have to try again is paused."""
    program = getattr(_current, "program", None)
    if program is None:
        return _flock(file, *patience)
    while True:
        try:
            return fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            program.stand(waits=file.fd)


@contextlib.contextmanager
def stepping(changes=None, flock=wait_for):
    """Inside, programs can be run step by step; each change that is made is added to `changes`.

    `flock`: takes the locks, in the place of `locks._flock`.
    """

    def before(change):
        program = getattr(_current, "program", None)
        if program is not None:
            program.stand(change)
        if changes is not None:
            changes.append(change)

    own = locks._table, locks._flock
    locks._table, locks._flock = _Tables(), flock
    with observed(before):
        try:
            yield
        finally:
            locks._table, locks._flock = own


class EveryOrder:
    """Makes the choices of one run after the other, until each order of steps has been run once (in depth)."""

    def __init__(self):
        self._choices, self._counts, self._at = [], [], 0

    def choose(self, options):
        if self._at == len(self._choices):
            self._choices.append(0)
            self._counts.append(0)
        self._counts[self._at] = len(options)
        self._at += 1
        return options[self._choices[self._at - 1]]

    def next(self):
        """Begins the next run; False if that was the last."""
        while self._choices and self._choices[-1] + 1 == self._counts[-1]:
            self._choices.pop()
            self._counts.pop()
        if not self._choices:
            return False
        self._choices[-1] += 1
        self._at = 0
        return True


class AnyOrder:
    """Makes the choices of one run by chance."""

    def __init__(self, random, steps):
        """`steps`: about how many the run has."""
        self._random, self._left = random, random.randrange(steps)
        # Programs that change all the time meet in other places than those that run on for a while.
        self._changes = random.random()

    def choose(self, options):
        self._left -= 1
        kills = [option for option in options if option[0] == "kill"]
        if kills and self._left < 0:
            return self._random.choice(kills)
        steps = [option for option in options if option[0] == "step"]
        return self._random.choice(steps) if self._random.random() < self._changes else steps[0]


def run(programs, choose, kills, after):
    """Runs programs to their ends, or until they are killed.

    Args:
        programs: the name of each, and a function.
        choose: picks one of the possible next steps, each ("step" or "kill", program); to continue with the program
            that made the last one comes first.
        kills: how many programs may be killed.
        after: called after each step.

    Returns:
        The steps: what, of which program, and before which change to which file it waited.
    """
    back = threading.Lock()
    back.acquire()
    live = [Program(name, work, back) for name, work in programs]
    steps, last = [], live[0]
    try:
        while ready := sorted((one for one in live if one.ready), key=lambda one: one is not last):
            options = [("step", one) for one in ready]
            options += [("kill", one) for one in live if kills and one.begun and not one.ended]
            what, one = options[0] if len(options) == 1 else choose(options)
            steps.append((what, one.name, one.at and f"{one.at.kind} {os.path.basename(one.at.path)}"))
            if what == "kill":
                kills -= 1
                one.kill()
            else:
                last = one
                one.step()
            after()
        assert all(one.ended for one in live), "no program can continue"
        errors = [(one.name, one.error) for one in live if one.error is not None]
        assert not errors, errors
    except Exception as error:
        raise AssertionError(f"after {steps}: {error!r}") from error
    finally:
        for one in live:
            one.kill()
    return steps
