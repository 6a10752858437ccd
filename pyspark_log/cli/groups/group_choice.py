"""Which groups, and which partitions, a command of `pylog groups` is about."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from pyspark_log.cli.support import complete_groups, complete_topics, one_line, warn
from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.storage.seam import Offsets
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

_Command = TypeVar("_Command", bound=Callable[..., Any])

_NUMBERS = re.compile(r"[0-9]{1,10}(,[0-9]{1,10})*")


def group_options(command: _Command) -> _Command:
    """Adds GROUP..., --group and --all-groups, for `chosen_groups`."""
    command = click.option("--all-groups", is_flag=True, help="Every group.")(command)
    command = click.option(
        "--group", "more", multiple=True, metavar="GROUP", shell_complete=complete_groups, help="The same as GROUP."
    )(command)
    return click.argument("names", metavar="[GROUP]...", nargs=-1, shell_complete=complete_groups)(command)


def chosen_groups(log: Offsets, names: Sequence[str], more: Sequence[str], all_groups: bool) -> list[str]:
    """The groups that a user has named, each once. click.UsageError: none, or names beside --all-groups."""
    named = list(dict.fromkeys([*names, *more]))
    if all_groups == bool(named):
        raise click.UsageError("Which group? Name one, or give --all-groups.")
    return log.groups() if all_groups else named


class Refusals:
    """The groups that a command was refused for. One refusal does not stop the command for the other groups."""

    def __init__(self) -> None:
        self._errors: list[tuple[str, click.ClickException | PylogError | OSError]] = []

    @contextlib.contextmanager
    def of(self, group: str) -> Iterator[None]:
        """Keeps the error that the block raises for a group."""
        try:
            yield
        except BrokenPipeError:
            raise  # The output was closed, which has nothing to do with the group.
        except (click.ClickException, PylogError, OSError) as error:
            self._errors.append((group, error))

    def raise_if_any(self, groups: Sequence[str]) -> None:
        """Raises what was kept, if anything was: the error itself if it was one group, else a line for each."""
        if self._errors and len(groups) == 1:
            raise self._errors[0][1]
        if self._errors:
            lines = "".join(f"\n  {group}: {one_line(error)}" for group, error in self._errors)
            raise click.ClickException(f"{len(self._errors)} of {len(groups)} groups failed:{lines}")


topic_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:N,...]",
    shell_complete=complete_topics,
    help="All partitions of a topic, or some: orders:0,2; repeatable.",
)


def topic_and_numbers(spec: str) -> tuple[str, list[int] | None]:
    """What a --topic names: the topic, and which of its partitions; None: all. click.UsageError."""
    topic, colon, numbers = spec.partition(":")
    if colon and not _NUMBERS.fullmatch(numbers):
        raise click.UsageError(f"--topic {spec}: expected partition numbers after the colon, as in orders:0,2")
    return topic, [int(number) for number in numbers.split(",")] if colon else None


def topic_partitions(store: Store, specs: Iterable[str]) -> list[TopicPartition]:
    """The partitions that --topic names, each once, in order.

    Raises:
        click.UsageError: a text that names none.
        UnknownTopicError: no such topic or partition.
    """
    found = set()
    for spec in specs:
        topic, numbers = topic_and_numbers(spec)
        count = store.describe_topic(topic).partitions
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise UnknownTopicError(f"topic {topic!r} has the partitions 0 to {count - 1}, not {number}")
            found.add(TopicPartition(topic, number))
    return sorted(found)


def existing_partitions(store: Store, partitions: Collection[TopicPartition], group: str) -> list[TopicPartition]:
    """Those of some partitions that still exist, in order; of the others a line on standard error says so."""
    there = []
    for at in sorted(partitions):
        try:
            exists = at.partition < store.describe_topic(at.topic).partitions
        except UnknownTopicError:
            exists = False
        if exists:
            there.append(at)
        else:
            warn(f"group {group}: {at} is skipped, because there is no such partition")
    return there
