"""Makes a cluster on one machine: picks ports and ids, formats the controllers' folders, creates the nodes' stores."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Sequence
from typing import Final

from pyspark_log.local_cluster.errors import LocalClusterError
from pyspark_log.local_cluster.kafka import Kafka
from pyspark_log.local_cluster.layout import HOST, LOGS, Layout, Member
from pyspark_log.server.cluster.features import METADATA_VERSION, SUPPORTED
from pyspark_log.storage.catalog import store_json
from pyspark_log.storage.catalog.topics import new_id
from pyspark_log.storage.fs import files

MOST_NODES: Final = 99
_CONTROLLERS: Final = 3
# To ask Kafka, and to format each of them.
_STEPS: Final = 1 + _CONTROLLERS
_FIRST_CONTROLLER: Final = 101
_MOST_COPIES: Final = 3
_TOOL: Final = "kafka.tools.StorageTool"
# What no node of ours coordinates: share groups, and groups of Kafka Streams' own protocol.
_NOT_COORDINATED: Final = ("share.version", "streams.version")
_LARGEST_PORT: Final = 65535


def make_cluster(folder: str, kafka: Kafka, nodes: int, port: int, report: Callable[[str], None]) -> Layout:
    """Makes a cluster, of which nothing runs yet.

    Args:
        folder: a folder that is missing or empty; that above it exists.
        kafka: whose controllers it gets.
        nodes: how many of ours it has, up to MOST_NODES.
        port: of the first node; all others have the ports after it.
        report: called with a line for the user before each step that takes seconds.

    Raises:
        LocalClusterError: the folder is not empty or has a name that Kafka's settings cannot have, a port is used, or
            this Kafka has metadata that nodes do not know; nothing was changed. Or one of Kafka's tools fails; what was
            made was deleted.
        OSError: the folder cannot be written to.
    """
    folder = files.absolute_path(folder)
    _check_folder(folder)
    members = range(nodes + _CONTROLLERS)
    check_ports([port + number for number in members])
    report(f"1 of {_STEPS}  asking Kafka {kafka.version} which features it has")
    features = _features(kafka)
    layout = Layout(
        folder, new_id(), kafka.jars,
        controllers=[Member(_FIRST_CONTROLLER + one, port + nodes + one) for one in range(_CONTROLLERS)],
        nodes=[Member(1 + one, port + one) for one in range(nodes)],
    )  # fmt: skip
    is_new = files.make_folder(folder)
    try:
        _make(layout, kafka, features, report)
    except BaseException:
        for name in files.list_folder(folder):
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):
                files.remove_empty_folder(folder)
        raise
    return layout


def _check_folder(folder: str) -> None:
    if "," in folder:
        raise LocalClusterError(f"{folder}: Kafka's log.dirs can have no comma in its name")
    above = folder.rpartition("/")[0] or "/"
    if not files.is_folder(above):
        raise LocalClusterError(f"{folder}: the folder above it does not exist")
    with contextlib.suppress(FileNotFoundError):
        try:
            names = files.list_folder(folder)
        except NotADirectoryError:
            raise LocalClusterError(f"{folder} is a file") from None
        if names:
            raise LocalClusterError(f"{folder} is not empty: a cluster is made only in a new or empty folder")


def check_ports(ports: Sequence[int]) -> None:
    """Refuses ports of this machine of which one is used. LocalClusterError."""
    if ports[-1] > _LARGEST_PORT:
        raise LocalClusterError(f"there are no ports up to {ports[-1]}: begin with a lower one by --port")
    for port in ports:
        with socket.socket() as probe:
            # As a server does, so that connections which have just ended do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise LocalClusterError(f"port {port} of {HOST} cannot be used: {error.strerror}") from None


def _features(kafka: Kafka) -> Sequence[str]:
    """The features that are not to be finalized. LocalClusterError: nodes do not know the metadata of this Kafka."""
    rows = [line.split() for line in kafka.run(_TOOL, "version-mapping").splitlines()]
    levels = {name: int(level) for name, _, level in (row[0].partition("=") for row in rows if row)}
    level, newest = levels.get(METADATA_VERSION, 0), SUPPORTED[METADATA_VERSION].highest
    if level > newest:
        raise LocalClusterError(
            f"clusters of Kafka {kafka.version} begin with {METADATA_VERSION} {level}, and this version of pyspark-log "
            f"knows those up to {newest}: take an older Kafka"
        )
    return [name for name in levels if name not in SUPPORTED or name in _NOT_COORDINATED]


def _make(layout: Layout, kafka: Kafka, without: Sequence[str], report: Callable[[str], None]) -> None:
    files.make_folder(f"{layout.folder}/{LOGS}")
    copies = min(len(layout.nodes), _MOST_COPIES)
    voters = ",".join(f"{one.id}@{one.address}:{new_id()}" for one in layout.controllers)
    for number, controller in enumerate(layout.controllers, 2):
        report(f"{number} of {_STEPS}  formatting controller {controller.id}")
        files.make_folder(layout.home(controller))
        settings = {
            "process.roles": "controller",
            "node.id": controller.id,
            "controller.quorum.bootstrap.servers": layout.quorum,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{controller.address}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{layout.home(controller)}/metadata",
            # Of new topics; the controllers decide.
            "default.replication.factor": copies,
            "min.insync.replicas": max(1, copies - 1),
        }
        text = "".join(f"{name}={_escaped(str(value))}\n" for name, value in settings.items())
        files.create_whole(layout.settings(controller), text.encode())
        given = [word for name in without for word in ("--feature", f"{name}=0")]
        kafka.run(
            _TOOL, "format", "--cluster-id", layout.cluster_id, "--config", layout.settings(controller),
            "--initial-controllers", voters, *given,
        )  # fmt: skip
    for node in layout.nodes:
        store_json.make(layout.store(node), {}, layout.cluster_id)
    layout.write()  # Last, as what has it is a cluster.


def _escaped(value: str) -> str:
    """A value as Java's properties have it."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(one) if 0x20 <= one < 0x7F and one != ord("\\") else f"\\u{one:04x}" for one in codes)
