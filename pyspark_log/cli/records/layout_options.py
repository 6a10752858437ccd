"""The options that say how records are printed, for `consume` and `tail`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from pyspark_log.cli.records.formats import TextLayout

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = [
    click.option(
        "--format", "output_format", type=click.Choice(["text", "json", "offsets"]), default="text", show_default=True,
        help="text: values as they are, a line each. json: everything of a record, an object a line;"
        " bytes that are no UTF-8 are shown as base64 in key_base64 or value_base64."
        " offsets: records of __consumer_offsets as what they say, an object a line.",
    ),
    click.option("--print-timestamp", is_flag=True, help="In text, print the record's time before the value."),
    click.option("--print-partition", is_flag=True, help="In text, print the partition before the value."),
    click.option("--print-offset", is_flag=True, help="In text, print the offset before the value."),
    click.option(
        "--print-headers", is_flag=True, help="In text, print the headers before the value: a:1,b:2, or NO_HEADERS."
    ),
    click.option("--print-key", is_flag=True, help="In text, print the key before the value."),
    click.option(
        "--key-separator", default="\t", metavar="TEXT",
        help="In text, what is printed between these and the value.  [default: a tab]",
    ),
    click.option(
        "--null-literal", default="null", show_default=True, metavar="TEXT", help="In text, what is printed for null."
    ),
]  # fmt: skip


def printing_options(command: _Command) -> _Command:
    """Adds the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_layout(command: _Command) -> _Command:
    """Adds the options; the command gets `output_format` and `layout`."""

    @functools.wraps(command)
    def converted(
        *args: object, print_timestamp: bool, print_partition: bool, print_offset: bool, print_headers: bool,
        print_key: bool, key_separator: str, null_literal: str, **options: object,
    ) -> object:
        layout = TextLayout(
            print_timestamp, print_partition, print_offset, print_headers, print_key, key_separator.encode(),
            null_literal.encode(),
        )  # fmt: skip
        return command(*args, layout=layout, **options)

    return cast(_Command, printing_options(converted))
