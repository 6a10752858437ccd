"""The options of `pylog serve` for a node of a Kafka cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pyspark_log.cli.support import Address, options_as
from pyspark_log.cli.transfer.client_option import client_option, read_client_config

if TYPE_CHECKING:
    from pyspark_log.server.node.config import ClusterConfig

_OPTIONS = (
    click.option(
        "--controllers",
        metavar="HOST:PORT,...",
        help="Be a node of the Kafka cluster that has these controllers (KRaft): replicate what is assigned to "
        "--node-id.",
    ),
    click.option("--stay-fenced", is_flag=True, help="With --controllers: be in no ISR, and so delay no producer."),
    click.option(
        "--take-new-topics",
        is_flag=True,
        help="With --controllers: also take partitions that the controllers place by themselves.",
    ),
    click.option("--rack", metavar="NAME", help="With --controllers, and over an object store: Kafka's broker.rack."),
    click.option(
        "--replication-listener",
        metavar="NAME",
        default="",
        help="With --controllers: the brokers' inter.broker.listener.name, if it is not named as its protocol.",
    ),
    client_option,
    click.option(
        "--controller-config",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="The same for the controllers, if it is not the same file.",
    ),
)


@dataclass(frozen=True)
class ClusterOptions:
    """What the user has said of the cluster; the fields have the names of the options."""

    controllers: str | None
    stay_fenced: bool
    take_new_topics: bool
    rack: str | None
    replication_listener: str
    client_config: str | None
    controller_config: str | None

    def config(self) -> ClusterConfig | None:
        """How the server is a node of a cluster; None: it is none. Errors as of `read_client_config`."""
        if self.controllers is None:
            return None
        from pyspark_log.server.node.config import ClusterConfig  # noqa: PLC0415

        kind = Address(9093)
        return ClusterConfig(
            [kind.convert(address.strip(), None, None) for address in self.controllers.split(",")],
            self.replication_listener,
            self.rack,
            self.stay_fenced,
            self.take_new_topics,
            read_client_config(self.client_config),
            read_client_config(self.controller_config or self.client_config),
            os.path.abspath(self.client_config) if self.client_config else "",
        )


#: Gives a command these options, as the argument `node`.
cluster_options = options_as("node", ClusterOptions, _OPTIONS)
