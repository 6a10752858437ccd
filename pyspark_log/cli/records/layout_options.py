"""The options that say which records are printed, and how, for `consume` and `tail`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from pyspark_log.cli.records.formats import TextLayout
from pyspark_log.cli.records.matching import pattern_problem
from pyspark_log.cli.records.template import Template
from pyspark_log.cli.support import with_options

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _template(_ctx: click.Context, _parameter: click.Parameter, text: str | Template | None) -> Template | None:
    if text is None or isinstance(text, Template):  # `tail` hands it to `consume`.
        return text
    try:
        return Template(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _pattern(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    problem = None if text is None else pattern_problem(text)
    if problem:
        raise click.BadParameter(f"{text!r} is not a regular expression: {problem}")
    return text


_OPTIONS = [
    click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="Stop after N records."),
    click.option(
        "--format", "output_format", type=click.Choice(["text", "json", "offsets"]), default="text", show_default=True,
        help="text: the values, a line each. json: whole records, an object per line, with bytes that are not UTF-8 in"
        " base64 (key_base64, value_base64). offsets: the records of __consumer_offsets, decoded, an object per line.",
    ),
    click.option(
        "--format-string", "-f", callback=_template, metavar="TEMPLATE",
        help="Print each record as this template says, as kcat -f does: %t topic, %p partition, %o offset, %k key,"
        " %s value, %h headers (a=1,b=2), %T time in ms, %K and %S the sizes of key and value (-1: null), %% a percent"
        " sign, \\n, \\t, \\r, \\xHH. Example: '%t [%p] %o: %k %s\\n'",
    ),
    click.option(
        "--grep", callback=_pattern, metavar="REGEX",
        help="Only records in whose key or value this regular expression (RE2) is found; (?i) ignores case.",
    ),
    click.option("--print-timestamp", is_flag=True, help="Text: print the record's time before the value."),
    click.option("--print-partition", is_flag=True, help="Text: print the partition before the value."),
    click.option("--print-offset", is_flag=True, help="Text: print the offset before the value."),
    click.option(
        "--print-headers", is_flag=True, help="Text: print the headers before the value: a:1,b:2, or NO_HEADERS."
    ),
    click.option("--print-key", is_flag=True, help="Text: print the key before the value."),
    click.option(
        "--key-separator", default="\t", metavar="TEXT",
        help="Text: the separator between these and the value. [default: a tab]",
    ),
    click.option(
        "--null-literal", metavar="TEXT",
        help="Text: what to print for null. [default: null; nothing with --format-string]",
    ),
]  # fmt: skip


#: Gives a command these options.
printing_options = with_options(_OPTIONS)


def with_layout(command: _Command) -> _Command:
    """Adds the options; the command gets `output_format`, `layout`, `format_string` and `grep`."""

    @functools.wraps(command)
    def converted(
        *args: object,
        print_timestamp: bool,
        print_partition: bool,
        print_offset: bool,
        print_headers: bool,
        print_key: bool,
        key_separator: str,
        null_literal: str | None,
        format_string: Template | None,
        **options: object,
    ) -> object:
        before = (print_timestamp, print_partition, print_offset, print_headers, print_key)
        if format_string is not None and (any(before) or options["output_format"] != "text"):
            raise click.UsageError("--format-string cannot be combined with --format or --print-...")
        if null_literal is None:
            null_literal = "null" if format_string is None else ""
        layout = TextLayout(*before, key_separator.encode(), null_literal.encode())
        return command(*args, layout=layout, format_string=format_string, **options)

    return cast(_Command, printing_options(converted))
