"""Units of systemd for the processes of a cluster on one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pyspark_log.local_cluster.kafka import Kafka
from pyspark_log.local_cluster.layout import Layout
from pyspark_log.storage.fs import files

_PLAIN = re.compile(r"[\w./,:=@+-]+", re.ASCII)
# Java's exit code after SIGTERM.
_TERMINATED: Final = 143


def systemd_units(layout: Layout, kafka: Kafka) -> Iterator[tuple[str, str]]:
    """The name and the text of a unit for each process, which runs as the user that the cluster's folder belongs to."""
    user = files.status_of(layout.folder).st_uid
    controllers = [f"pylog-controller-{one.id}.service" for one in layout.controllers]
    for controller, name in zip(layout.controllers, controllers, strict=True):
        command = layout.controller_command(controller, kafka)
        service = ["Type=exec", f"SuccessExitStatus={_TERMINATED}"]
        yield name, _unit(f"Kafka controller {controller.id}", layout.folder, (), service, command, user)
    for node in layout.nodes:
        text = _unit(
            f"pylog node {node.id}", layout.folder, controllers, ["Type=notify"], layout.node_command(node), user
        )
        yield f"pylog-node-{node.id}.service", text


def _unit(
    what: str, folder: str, after: Sequence[str], service: Sequence[str], command: Sequence[str], user: int
) -> str:
    lines = [
        "[Unit]",
        f"Description={what} of the cluster in {folder.replace('%', '%%')}",
        # What is started after others is stopped before them.
        f"After={' '.join(('network.target', *after))}",
        *([f"Wants={' '.join(after)}"] if after else ()),
        "",
        "[Service]",
        *service,
        f"User={user}",
        f"ExecStart={' '.join(map(_quoted, command))}",
        "Restart=on-failure",
        "RestartSec=5",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """A word of a command as systemd reads it (systemd.service(5)): % and $ are doubled."""
    word = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(word.replace("%", "").replace("$", "")):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
