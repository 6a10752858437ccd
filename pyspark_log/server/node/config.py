"""How a server is a node of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark_log.kafka.client_config import ClientConfig


@dataclass(frozen=True)
class ClusterConfig:
    """How a server is a node of a Kafka cluster.

    Attributes:
        controllers: hosts and ports of some of the controllers.
        listener: the name of the listener by which brokers reach each other (Kafka's inter.broker.listener.name), which
            that of this node gets, too; "": as the protocol is named.
        rack: Kafka's broker.rack.
        stay_fenced: it is in no ISR, so that it delays no producer and is never elected.
        takes_new: it may get partitions of new topics; else only those that are assigned to it by name.
        client: how it logs in to brokers.
        controller_client: the same for controllers.
        client_file: the path of the file that says how to log in to brokers; "": that is not needed.
    """

    controllers: Sequence[tuple[str, int]]
    listener: str = ""
    rack: str | None = None
    stay_fenced: bool = False
    takes_new: bool = False
    client: ClientConfig = field(default_factory=ClientConfig)
    controller_client: ClientConfig = field(default_factory=ClientConfig)
    client_file: str = ""
