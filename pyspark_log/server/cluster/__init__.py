"""A node of a Kafka cluster under Kafka's own controllers (KRaft): state machines without sockets, files and clocks.

The observer follows the log of the cluster's metadata, whose records are folded into images; the registration makes the
node known to the controllers; and a led partition decides which replicas are in sync, and what all of them have.
"""

from pyspark_log.server.cluster.errors import NodeError
from pyspark_log.server.cluster.fold import Change
from pyspark_log.server.cluster.image import Image
from pyspark_log.server.cluster.observer import Observer, ObserverConfig
from pyspark_log.server.cluster.registration import NodeConfig, Registration, State
from pyspark_log.server.cluster.requests import Address, in_version

__all__ = [
    "Address", "Change", "Image", "NodeConfig", "NodeError", "Observer", "ObserverConfig", "Registration", "State",
    "in_version",
]  # fmt: skip
