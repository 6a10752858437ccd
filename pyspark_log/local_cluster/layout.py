"""What a cluster on one machine consists of, and where it is: the file cluster.json of its folder.

The folder has, beside that file, the store of each node (`node-1`), a folder for each controller (`controller-101`),
which has its settings and its metadata, and a log of each process (`logs/node-1.log`).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark_log.local_cluster.errors import LocalClusterError
from pyspark_log.local_cluster.kafka import Kafka
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields

HOST: Final = "127.0.0.1"
FILE: Final = "cluster.json"
LOGS: Final = "logs"
_LARGEST: Final = 1 << 20
_VERSION: Final = 1


class Member(NamedTuple):
    """A controller or a node: its id, and its port."""

    id: int
    port: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True)
class Layout:
    """A cluster in a folder.

    Attributes:
        folder: its absolute path.
        cluster_id: of the cluster.
        jars: the folder of Kafka's jars.
        controllers: of Kafka.
        nodes: of ours.
    """

    folder: str
    cluster_id: str
    jars: str
    controllers: Sequence[Member]
    nodes: Sequence[Member]

    @property
    def bootstrap(self) -> str:
        """What clients have as their bootstrap.servers."""
        return ",".join(one.address for one in self.nodes)

    @property
    def quorum(self) -> str:
        """The addresses of the controllers."""
        return ",".join(one.address for one in self.controllers)

    def store(self, node: Member) -> str:
        """The folder of a node's store."""
        return f"{self.folder}/node-{node.id}"

    def home(self, controller: Member) -> str:
        """The folder of a controller."""
        return f"{self.folder}/controller-{controller.id}"

    def settings(self, controller: Member) -> str:
        """The file of a controller's settings."""
        return f"{self.home(controller)}/server.properties"

    def log(self, name: str) -> str:
        """The file that a process writes what it says to; `name`: as node-1."""
        return f"{self.folder}/{LOGS}/{name}.log"

    def controller_command(self, controller: Member, kafka: Kafka) -> list[str]:
        """What starts a controller."""
        return kafka.command("kafka.Kafka", self.settings(controller))

    def node_command(self, node: Member) -> list[str]:
        """What starts a node."""
        return [
            sys.executable, "-m", "pyspark_log.cli.start", "serve", "--store", self.store(node), "--controllers",
            self.quorum, "--node-id", str(node.id), "--listen", node.address, "--take-new-topics",
        ]  # fmt: skip

    def write(self) -> None:
        """Writes cluster.json."""
        document = {
            "version": _VERSION,
            "cluster_id": self.cluster_id,
            "jars": self.jars,
            "controllers": [one._asdict() for one in self.controllers],
            "nodes": [one._asdict() for one in self.nodes],
        }
        files.create_whole(f"{self.folder}/{FILE}", json.dumps(document, indent=2).encode() + b"\n")


def read_layout(folder: str) -> Layout:
    """The cluster in a folder. LocalClusterError: there is none, or its cluster.json is invalid."""
    folder = files.absolute_path(folder)
    path = f"{folder}/{FILE}"
    try:
        data = files.read_whole(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        made = shlex.join(["pylog", "cluster", "init", folder])
        raise LocalClusterError(f"{folder} has no {FILE}: make a cluster there with {made}") from None
    try:
        fields = Fields.parse(data)
        fields.check_version(_VERSION, path)
        controllers, nodes = ([_member(one) for one in fields.list(kind)] for kind in ("controllers", "nodes"))
        return Layout(folder, fields.text("cluster_id"), fields.text("jars"), controllers, nodes)
    except ValueError as error:
        raise LocalClusterError(f"{path} is invalid: {error}") from None


def _member(content: object) -> Member:
    fields = Fields(content)
    return Member(fields.whole("id"), fields.whole("port", low=1, high=65535))
