"""What takes the place of Python's threads, clocks, chance and files in the product's modules.

Each has the names that the product uses. `installed` sets them as attributes of the modules while a simulation runs.
"""

import concurrent.futures
import contextlib
import operator
import queue
import random
import secrets
import selectors
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace

from pyspark_log.server.network.loop import Loop
from pyspark_log.storage.objects import objects as objects_module


def substitutes(world):
    """The substitutes, by what they replace."""

    def until(seconds):
        """The time of the world after so many seconds of a process, and a little: its clock may be rounded down."""
        if seconds is None or seconds <= 0:
            return None if seconds is None else world.now
        return world.now + seconds / world.current.process.clock.rate + 1e-6

    class Waiters:
        """Tasks that wait for something."""

        def __init__(self):
            self._tasks = []

        def wait(self, end=None):
            """Whether it was woken by the end, a time of the world."""
            task = world.current
            self._tasks.append(task)
            try:
                return world.block(end)
            finally:
                if task in self._tasks:
                    self._tasks.remove(task)

        def wake(self, count=1):
            for _ in range(min(count, len(self._tasks))):
                world.wake(self._tasks.pop(int(world.chance.random() * len(self._tasks))))

        def wake_all(self):
            self.wake(len(self._tasks))

    class Lock:
        def __init__(self):
            self._holder, self._count, self._waiters = None, 0, Waiters()

        def acquire(self, blocking=True, timeout=-1):
            world.breathe()
            task, end = world.current, until(timeout) if timeout >= 0 else None
            while self._holder is not None and not (self._holder is task and isinstance(self, RLock)):
                if not blocking or (end is not None and world.now >= end):
                    return False
                self._waiters.wait(end)
            self._holder, self._count = task, self._count + 1
            return True

        def release(self):
            self._count -= 1
            if not self._count:
                self._holder = None
                self._waiters.wake()

        def __enter__(self):
            return self.acquire()

        def __exit__(self, *_):
            self.release()

    class RLock(Lock):
        pass

    class Condition(RLock):
        def __init__(self):
            super().__init__()
            self._changed = Waiters()

        def wait(self, timeout=None):
            assert self._count == 1
            self.release()
            try:
                return self._changed.wait(until(timeout))
            finally:
                if world.current.process.is_dead:
                    self._count += 1  # which the end of the block takes back
                else:
                    self.acquire()

        def notify(self):
            self._changed.wake()

    class Event:
        def __init__(self):
            self._is_set, self._waiters = False, Waiters()

        def is_set(self):
            return self._is_set

        def set(self):
            self._is_set = True
            self._waiters.wake_all()

        def wait(self, timeout=None):
            end = until(timeout)
            while not self._is_set and (end is None or world.now < end):
                self._waiters.wait(end)
            return self._is_set

    class Thread:
        def __init__(self, target, args=(), name="", daemon=None):
            self.name, self._target, self._arguments, self._task = name, target, args, None

        @property
        def ident(self):
            return None if self._task is None else id(self._task)

        def start(self):
            self._task = world.spawn(world.current.process, self.name, lambda: self._target(*self._arguments))

        def join(self, timeout=None):
            end = until(timeout)
            while not self._task.is_over and (end is None or world.now < end):
                self._task.joined.append(world.current)
                world.block(end)

        def is_alive(self):
            return self._task is not None and not self._task.is_over

    class SimpleQueue:
        def __init__(self):
            self._items, self._waiters = deque(), Waiters()

        def put(self, item):
            self._items.append(item)
            self._waiters.wake()

        def get(self):
            while not self._items:
                self._waiters.wait()
            return self._items.popleft()

    class Future:
        def __init__(self):
            self._outcome, self._waiters = None, Waiters()

        def done(self):
            return self._outcome is not None

        def set_result(self, value):
            self._outcome = value, None
            self._waiters.wake_all()

        def set_exception(self, error):
            self._outcome = None, error
            self._waiters.wake_all()

        def result(self):
            while self._outcome is None:
                self._waiters.wait()
            value, error = self._outcome
            if error is not None:
                raise error
            return value

    class ThreadPoolExecutor:
        def __init__(self, max_workers, thread_name_prefix="pool"):
            self._most, self._name, self._jobs = max_workers, thread_name_prefix, deque()
            self._busy, self._idle = 0, Waiters()

        def submit(self, function, *arguments):
            future = Future()
            self._jobs.append((future, function, arguments))
            if self._busy < self._most:
                self._busy += 1
                world.spawn(world.current.process, self._name, self._work)
            return future

        def _work(self):
            while self._jobs:
                future, function, arguments = self._jobs.popleft()
                try:
                    value = function(*arguments)
                except Exception as error:  # noqa: BLE001  (as Python's)
                    future.set_exception(error)
                else:
                    future.set_result(value)
            self._busy -= 1
            self._idle.wake_all()

        def shutdown(self):
            while self._busy and not world.current.process.is_dead:
                self._idle.wait()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.shutdown()

    class Signals:
        """Numbers of files that only wake: pipes to themselves, and events."""

        def __init__(self):
            self.is_set, self.selector = [], {}

        def new(self):
            self.is_set.append(False)
            return len(self.is_set) - 1

        def write(self, fd):
            self.is_set[fd] = True
            if fd in self.selector:
                self.selector[fd].wake_all()

        def read(self, fd):
            if not self.is_set[fd]:
                raise BlockingIOError
            self.is_set[fd] = False
            return b"\0"

    signals = Signals()

    class Selector:
        def __init__(self):
            self._keys, self._waiters = {}, Waiters()

        def get_map(self):
            return self._keys

        def register(self, fd, events, data):
            self._keys[fd] = SimpleNamespace(fd=fd, events=events, data=data)
            signals.selector[fd] = self._waiters

        modify = register

        def unregister(self, fd):
            del self._keys[fd], signals.selector[fd]

        def select(self, timeout):
            end = until(timeout)
            while True:
                ready = [(key, selectors.EVENT_READ) for fd, key in self._keys.items() if signals.is_set[fd]]
                if ready or (end is not None and world.now >= end):
                    return ready
                self._waiters.wait(end)

        def close(self):
            """Nothing is open."""

    class Time:
        CLOCK_BOOTTIME, CLOCK_MONOTONIC = time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC

        @staticmethod
        def monotonic():
            return world.current.process.clock.monotonic()

        perf_counter = monotonic

        @staticmethod
        def time_ns():
            return int(world.current.process.clock.time() * 1e9)

        @staticmethod
        def clock_gettime_ns(_clock):
            return int(world.current.process.clock.since_boot() * 1e9)

        @staticmethod
        def sleep(seconds):
            world.block(until(seconds))

    def pipe():
        fd = signals.new()
        return fd, fd

    files = SimpleNamespace(
        pipe=pipe, set_blocking=lambda *_: None, write=lambda fd, _: signals.write(fd),
        read=lambda fd, _: signals.read(fd), close=lambda _: None, EFD_NONBLOCK=0, EFD_CLOEXEC=0,
        eventfd=lambda *_: signals.new(), eventfd_write=lambda fd, _: signals.write(fd), eventfd_read=signals.read,
    )  # fmt: skip
    chance = world.chance
    tokens = SimpleNamespace(
        token_hex=lambda size: chance.randbytes(size).hex(), token_bytes=chance.randbytes, randbits=chance.getrandbits,
        token_urlsafe=lambda size: chance.randbytes(size).hex()[: size * 4 // 3], choice=chance.choice,
    )  # fmt: skip
    threads = SimpleNamespace(
        Lock=Lock, RLock=RLock, Condition=Condition, Event=Event, Thread=Thread, local=threading.local
    )
    return {
        threading: threads, time: Time, secrets: tokens, random: chance, queue.SimpleQueue: SimpleQueue,
        concurrent.futures.Future: Future, concurrent.futures.ThreadPoolExecutor: ThreadPoolExecutor,
    }, files, SimpleNamespace(
        EVENT_READ=selectors.EVENT_READ, EVENT_WRITE=selectors.EVENT_WRITE, DefaultSelector=Selector
    )  # fmt: skip


@contextlib.contextmanager
def attributes(changes):
    """Sets attributes, by their objects and names, for the block."""
    before = {place: place[0].__dict__[place[1]] for place in changes}
    try:
        for (owner, name), value in changes.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)


def installed(world, library):
    """The product uses the world's threads, clocks and chance, and a library of an object store, in the block."""
    plain, files, select = substitutes(world)
    changes = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("pyspark_log.") or name.startswith("pyspark_log.storage.record"):
            continue
        for attribute, value in list(vars(module).items()):
            with contextlib.suppress(TypeError):  # what has no hash
                if value in plain:
                    changes[module, attribute] = plain[value]
                elif value is selectors:
                    changes[module, attribute] = select
    for module in ("server.network.loop", "server.served.objects.follower"):
        changes[sys.modules[f"pyspark_log.{module}"], "os"] = files
    for name in ("Future", "ThreadPoolExecutor"):
        changes[concurrent.futures, name] = plain[getattr(concurrent.futures, name)]
    changes[Loop, "time"] = staticmethod(plain[time].monotonic)
    changes[objects_module, "library"] = lambda: library
    changes[objects_module, "_connect"] = lambda *_: library.bucket
    # There is no Ctrl-C.
    changes[objects_module, "answer"] = operator.call
    return attributes(changes)
