"""Processes and threads: a process is known to others on its machine, and threads share work.

It is known even if its process id is used again. A process id has a meaning in one namespace of one boot only. Of
processes elsewhere nothing is known.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Process(NamedTuple):
    """A process.

    Attributes:
        number: its id.
        birth: where and when it was started: 16 hex digits for the boot of the machine and its namespace of process
            ids, a hyphen, and the time in ticks since the boot, in hex. "" if the system does not report it.
    """

    number: int
    birth: str = ""

    @classmethod
    def of(cls, number: int) -> Process:
        """Returns a live process of this machine."""
        machine, start = _machine(), _start(number)
        return cls(number, f"{machine}-{start:x}" if machine and start is not None else "")

    @classmethod
    def here(cls) -> Process:
        """Returns this process."""
        return cls.of(os.getpid())

    def is_near(self) -> bool:
        """Whether this process can determine if it is dead: it was started on this machine since its boot."""
        return bool(self.birth) and self.birth.partition("-")[0] == _machine()

    def is_dead(self) -> bool:
        """Whether it is certainly dead. False also if it is not near."""
        if not self.is_near():
            return False
        try:
            os.kill(self.number, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # Another user has it, or another process by now.
        now = _start(self.number)
        return now is not None and f"{now:x}" != self.birth.partition("-")[2]


def _machine() -> str:
    """A value that differs from boot to boot, and from namespace to namespace; "" if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read()
        # Another namespace's /proc shows other processes.
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "time")]
    except OSError:
        return ""
    return hashlib.sha256("".join([boot, *spaces]).encode()).hexdigest()[:16]


def _start(number: int) -> int | None:
    """When a process was started, in ticks since the boot; None if the system does not report it."""
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            # Its name is in brackets, and can have any character.
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """Calls `work` with each item; returns the results in the items' order.

    This thread is one of those that work, and the only one if the system gives the process no more (`ulimit -u`).

    Raises:
        BaseException: what `work` raised first; items that no thread had begun are left out.
    """
    given = list(items)
    left = list(enumerate(given))[::-1]
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []

    def take() -> None:
        while left and not errors:
            try:
                number, item = left.pop()
            except IndexError:
                return  # Another thread was faster.
            try:
                results[number] = work(item)
            except BaseException as error:  # noqa: BLE001  (raised below, in the thread that called)
                errors.append(error)

    others = min(threads, len(given)) - 1
    if others < 1:
        return [work(item) for item in given]
    with ThreadPoolExecutor(others) as pool:
        with contextlib.suppress(RuntimeError):
            for _ in range(others):
                pool.submit(take)
        take()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(given))]
