"""The option that says how a command logs in to a Kafka cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pyspark_log.kafka.client_config import ClientConfig

client_option = click.option(
    "--client-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="How to log in to the cluster: security.protocol, sasl.* and ssl.*, as in the files of Kafka's own tools or "
    "as librdkafka names them. Certificates in PEM.",
)


def read_client_config(path: str | None) -> ClientConfig:
    """As replication.login, which is loaded when it is needed."""
    from pyspark_log.replication.login import read_client_config as read  # noqa: PLC0415

    return read(path)
