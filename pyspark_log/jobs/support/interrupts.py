"""Ctrl-C while a job waits for Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from types import FrameType


@contextmanager
def interrupts_noted() -> Iterator[Event]:
    """For a `with`: until its end, an interrupt (SIGINT) sets the event, and raises nothing.

    PySpark's own handler calls the JVM. If it comes during another call to it, each of both gets the other's answer.
    Another thread than the main one sees no interrupt: Python has handlers for the main one alone.
    """
    noted = Event()
    if current_thread() is not main_thread():
        yield noted
        return

    def note(_number: int, _frame: FrameType | None) -> None:
        noted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
