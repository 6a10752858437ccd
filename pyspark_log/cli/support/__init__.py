"""What all commands share: tables and JSON, questions before something is deleted, progress, live views, values.

Nothing here loads rich or pyarrow before it is used: `pylog --help` must stay quick.
"""

from pyspark_log.cli.support.address import Address, check_jinja, check_prometheus_client, source_of
from pyspark_log.cli.support.commands import (
    CommandGroup,
    options_as,
    partitions_option,
    with_options,
    with_store_option,
)
from pyspark_log.cli.support.completion import complete_groups, complete_topics
from pyspark_log.cli.support.confirm import confirm, yes_option
from pyspark_log.cli.support.live import interval_option, is_end, watch
from pyspark_log.cli.support.output import (
    NOTHING,
    Colour,
    alert,
    cell,
    good,
    incomplete_if_interrupted,
    json_option,
    one_line,
    print_json,
    print_table,
    strong,
    table_text,
    warn,
)
from pyspark_log.cli.support.progress import ProgressBar
from pyspark_log.cli.support.values import Pattern, check_schemas, named_values, to_ms
from pyspark_log.units import human_size, plural

__all__ = [
    "NOTHING", "Address", "Colour", "CommandGroup", "Pattern", "ProgressBar", "alert", "cell", "check_jinja",
    "check_prometheus_client", "check_schemas", "complete_groups", "complete_topics", "confirm", "good",
    "human_size", "incomplete_if_interrupted", "interval_option", "is_end", "json_option", "named_values", "one_line",
    "options_as", "partitions_option", "plural", "print_json", "print_table", "source_of", "strong", "table_text",
    "to_ms", "warn", "watch", "with_options", "with_store_option", "yes_option",
]  # fmt: skip
