"""The same work for many items, in several threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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
