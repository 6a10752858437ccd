"""Threads of which exactly one runs, on a clock of their own: a seed draws which runs next, and nothing else does.

A task is a real thread that runs while it has the baton. It gives the baton away where it waits: for another task, for
a time, for an answer of the network. If none can run, the clock goes to the next time for which something waits.
"""

import heapq
import itertools
import random
import threading
import zlib
from collections import deque

# How often a task that could continue lets another one run first, where it takes a lock.
_YIELDS = 0.05
# What is shown of the last things that happened.
_LINES = 400


class KilledError(BaseException):
    """The process of this task was killed: nothing of it runs any more. It is no error that a process could handle."""


class Clock:
    """What a machine takes for the time, in seconds of the world at a rate of its own.

    Attributes:
        rate: how many of its seconds pass in one.
        wrong: how far its time of day is off.
        asleep_until: when the machine has slept last, up to when, in seconds of the world.
    """

    def __init__(self, world, rate=1.0, wrong=0.0):
        self._world, self.rate, self.wrong = world, rate, wrong
        self.asleep_until, self._missed = 0.0, 0.0

    def sleep(self, seconds):
        """The machine sleeps: its monotonic clock stops."""
        self.asleep_until = self._world.now + seconds
        self._missed += seconds

    def since_boot(self):
        return 1_000.0 + self._world.now * self.rate

    def monotonic(self):
        asleep = max(self.asleep_until - self._world.now, 0)
        return self.since_boot() - (self._missed - asleep) * self.rate

    def time(self):
        return 1_800_000_000 + self._world.now * self.rate + self.wrong


class Process:
    """Tasks that end and stop together.

    Attributes:
        is_dead: whether it was killed.
        frozen_until: up to when it is stopped, in seconds of the world.
    """

    def __init__(self, name, clock):
        self.name, self.clock, self.is_dead, self.frozen_until = name, clock, False, 0.0
        self.tasks, self.held = dict[Task, None](), list[Task]()

    def is_frozen(self, now):
        """Whether it is stopped at a time."""
        return now < self.frozen_until and not self.is_dead


class Task:
    """A thread of the simulation."""

    def __init__(self, process, name, function):
        self.process, self.function, self.label = process, function, f"{process.name}:{name}".encode()
        self.is_waiting = self.was_woken = self.is_over = False
        self.waits, self.joined, self.carrier = 0, list[Task](), None


class _Carrier(threading.Thread):
    """A real thread, which runs one task after the other."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.turn, self.task = world, threading.Lock(), None
        self.turn.acquire()
        self.start()

    def run(self):
        world = self.world
        while True:
            self.turn.acquire()
            task = self.task
            if task is None:
                return
            try:
                if not task.process.is_dead:
                    task.function()
            except KilledError:
                pass
            except BaseException as error:  # noqa: BLE001  (it is a fault of the product, or of the simulation)
                world.fault(f"{task.label.decode()} has ended: {error!r}", error)
            self.task = task.carrier = None
            world.carriers.append(self)
            world.end(task)


class World:
    """The tasks, and the time.

    Attributes:
        chance: what draws everything.
        now: the time, in seconds.
        trace: a checksum of all that has happened, in its order.
        lines: the last of it.
        problem: the first fault; None: there is none.
        switches: how often another task has run.
    """

    def __init__(self, seed):
        self.chance, self.now, self.trace, self.switches = random.Random(seed), 0.0, 0, 0
        self.lines, self.problem, self.cause = deque(maxlen=_LINES), None, None
        self._timers, self._numbers, self._ready = [], itertools.count(), list[Task]()
        self.carriers = list[_Carrier]()
        self.outside = Process("world", Clock(self))
        self.driver = self.current = Task(self.outside, "driver", None)
        self._turn = threading.Lock()  # the driver's, which runs in the thread that has made the world
        self._turn.acquire()

    # ---- what happens

    def note(self, line):
        """Takes something into the trace."""
        self.trace = zlib.crc32(f"{self.now:.6f} {line}".encode(), self.trace)
        self.lines.append((self.now, line))

    def fault(self, why, cause=None):
        """A rule is broken; the driver finds out."""
        if self.problem is None:
            self.problem, self.cause = f"after {self.now:.3f} s: {why}", cause
            self.wake(self.driver)

    def likely(self, probability):
        return self.chance.random() < probability

    # ---- time

    def after(self, seconds, action):
        """Calls a function at a time, in whichever thread; it must not wait."""
        heapq.heappush(self._timers, (self.now + seconds, next(self._numbers), action, 0))

    def sleep(self, seconds):
        """Waits so many seconds of the world."""
        self.block(self.now + seconds)

    # ---- tasks

    def spawn(self, process, name, function):
        """Begins a task."""
        task = Task(process, name, function)
        process.tasks[task] = None
        self._ready.append(task)
        return task

    def block(self, until=None):
        """The current task waits until it is woken, or for a time of the world; whether it was woken."""
        task = self.current
        if task.process.is_dead:
            raise KilledError
        task.is_waiting = True
        if until is not None:
            heapq.heappush(self._timers, (until, next(self._numbers), task, task.waits))
        self._switch(task)
        if task.process.is_dead:
            raise KilledError
        return task.was_woken

    def wake(self, task):
        """What waits continues."""
        if task.is_waiting:
            self._continue(task, was_woken=True)

    def _continue(self, task, *, was_woken):
        task.is_waiting, task.was_woken = False, was_woken
        task.waits += 1
        self._ready.append(task)

    def breathe(self):
        """Lets another task run first, now and then."""
        if self._ready and self.chance.random() < _YIELDS and not self.current.process.is_dead:
            self._ready.append(self.current)
            self._switch(self.current)
            if self.current.process.is_dead:
                raise KilledError

    def end(self, task):
        """A task is over; the next one has the baton."""
        task.is_over = True
        task.process.tasks.pop(task, None)
        for other in task.joined:
            self.wake(other)
        self._pass_to(self._next())

    def kill(self, process):
        """Nothing of a process runs any more."""
        process.is_dead = True
        self._ready += process.held
        process.held = []
        for task in list(process.tasks):
            self.wake(task)

    def freeze(self, process, seconds):
        """A process stops for some time; longer, if it is stopped once more meanwhile."""
        process.frozen_until = max(process.frozen_until, self.now + seconds)
        self.after(seconds, lambda: self._thaw(process))

    def _thaw(self, process):
        if not process.is_frozen(self.now):
            self._ready += process.held
            process.held = []

    def _switch(self, task):
        following = self._next()
        if following is not task:
            self._pass_to(following)
            (self._turn if task is self.driver else task.carrier.turn).acquire()

    def _pass_to(self, task):
        if task is self.driver:
            self._turn.release()
            return
        if task.carrier is None:
            task.carrier = self.carriers.pop() if self.carriers else _Carrier(self)
            task.carrier.task = task
        task.carrier.turn.release()

    def _next(self):
        """Which task runs next."""
        ready, timers = self._ready, self._timers
        while True:
            if ready:
                place = int(self.chance.random() * len(ready)) if len(ready) > 1 else 0
                task, ready[place] = ready[place], ready[-1]
                ready.pop()
                if task.process.is_frozen(self.now):
                    task.process.held.append(task)
                    continue
                self.current = task
                self.switches += 1
                self.trace = zlib.crc32(task.label, self.trace)
                return task
            if not timers:
                self.fault("nothing can happen any more")
                continue
            when, _, what, waits = heapq.heappop(timers)
            if not isinstance(what, Task):
                self.now = max(self.now, when)
                what()
            elif what.is_waiting and what.waits == waits:
                self.now = max(self.now, when)
                self._continue(what, was_woken=False)

    def close(self):
        """Ends all real threads; no task is left."""
        for carrier in self.carriers:
            carrier.turn.release()
            carrier.join()
