"""Runs a cluster on one machine: starts its processes, reports those that end, and stops all in order."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark_log.errors import PylogError
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.messages import DescribeClusterRequest
from pyspark_log.kafka.schemas import Struct
from pyspark_log.local_cluster.errors import LocalClusterError
from pyspark_log.local_cluster.kafka import Kafka
from pyspark_log.local_cluster.layout import HOST, Layout, Member
from pyspark_log.local_cluster.making import check_ports
from pyspark_log.storage.fs import files

_CONTROLLERS: Final = 2  # a type of endpoint
# How long all processes may take to start, and a part of them to end, in seconds.
_PATIENCE: Final = 120.0
_LEAVING: Final = 60.0
_NAP: Final = 0.2
_TIMEOUT: Final = 5.0
_LAST_LINES: Final = 20
_LAST_BYTES: Final = 8192


@dataclass
class _Process:
    """A process.

    Attributes:
        name: as node-1.
        command: what has started it.
        log: the file that it writes to, from the byte `begin` on.
        running: itself; None: its end was reported.
    """

    name: str
    command: list[str]
    log: str
    begin: int
    running: subprocess.Popen[bytes] | None

    def last_lines(self) -> str:
        """The end of what it has said."""
        with files.open_read(self.log) as file:
            size = file.size()
            begin = max(self.begin, size - _LAST_BYTES)
            lines = file.pread(size - begin, begin).decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])


class LocalCluster:
    """The processes of a cluster, which run as long as `run`."""

    def __init__(self, layout: Layout, kafka: Kafka, report: Callable[[str], None]) -> None:
        """`report`: called with lines for the user: how far the start is, that all are ready, and what has ended."""
        self._layout, self._kafka, self._report = layout, kafka, report
        self._controllers, self._nodes = list[_Process](), list[_Process]()
        self._stopping, self._hurrying = threading.Event(), threading.Event()

    def stop(self) -> None:
        """Has `run` end in order; a second call, at once. It may be called by a signal handler."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    def run(self) -> None:
        """Starts all processes, and stops them after `stop`: nodes first, so that the controllers let them leave.

        Raises:
            LocalClusterError: a port is used, as by a cluster that runs already; a process ends before all nodes are
                unfenced, or they are not in time; no node runs any more. All processes have ended.
            OSError: one cannot be started.
        """
        layout = self._layout
        check_ports([one.port for one in (*layout.nodes, *layout.controllers)])
        try:
            self._report(f"1 of 2  starting the controllers ({len(layout.controllers)}); some 20 s")
            self._controllers = [
                self._start(f"controller-{one.id}", layout.controller_command(one, self._kafka))
                for one in layout.controllers
            ]
            if not self._wait_for(self._is_served, "the controllers answer"):
                return
            self._report(f"2 of 2  starting the nodes ({len(layout.nodes)}), until all are unfenced; some 20 s")
            self._nodes = [self._start(f"node-{one.id}", layout.node_command(one)) for one in layout.nodes]
            if not self._wait_for(self._are_unfenced, "all nodes are unfenced"):
                return
            self._report(f"All {len(self._nodes)} nodes are unfenced. bootstrap.servers={layout.bootstrap}")
            self._watch()
        finally:
            self._end(self._nodes)
            self._end(self._controllers)

    def _start(self, name: str, command: list[str]) -> _Process:
        log = self._layout.log(name)
        with open(log, "ab") as output:
            begin = output.seek(0, os.SEEK_END)
            # In a session of its own, so that Ctrl-C is for this process alone.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        return _Process(name, command, log, begin, process)

    def _wait_for(self, condition: Callable[[], bool], what: str) -> bool:
        """Waits for something; False: it is to stop. LocalClusterError: a process has ended, or it takes too long."""
        end = time.monotonic() + _PATIENCE
        while not self._stopping.is_set():
            for one in self._ended():
                raise LocalClusterError(_described(one))
            if condition():
                return True
            if time.monotonic() > end:
                raise LocalClusterError(
                    f"it has not come to this within {_PATIENCE:.0f} s: {what}; see {self._layout.folder}/logs"
                )
            self._stopping.wait(_NAP)
        return False

    def _is_served(self) -> bool:
        """Whether a controller answers. LocalClusterError: that of another cluster does."""
        for one in self._layout.controllers:
            found = _ask(one, DescribeClusterRequest(endpoint_type=_CONTROLLERS))
            if found is not None and not found.error_code:
                if found.cluster_id != self._layout.cluster_id:
                    raise LocalClusterError(f"at {one.address} is a controller of the cluster {found.cluster_id}")
                return True
        return False

    def _are_unfenced(self) -> bool:
        """Whether each node knows that all of them are unfenced."""
        ids = {one.id for one in self._layout.nodes}
        answers = (_ask(one, DescribeClusterRequest()) for one in self._layout.nodes)
        return all(found is not None and ids <= {one.broker_id for one in found.brokers} for found in answers)

    def _watch(self) -> None:
        while not self._stopping.wait(_NAP):
            for one in self._ended():
                self._report(f"{_described(one)}\nStart it again with: {shlex.join(one.command)}")
                one.running = None
            if not any(one.running for one in self._nodes):
                raise LocalClusterError("no node runs any more")

    def _ended(self) -> Iterable[_Process]:
        for one in (*self._nodes, *self._controllers):
            if one.running is not None and one.running.poll() is not None:
                yield one

    def _end(self, processes: Iterable[_Process]) -> None:
        """Ends processes in order; those that take too long, at once."""
        running = [one.running for one in processes if one.running is not None]
        for one in running:
            one.send_signal(signal.SIGTERM)
        end = time.monotonic() + _LEAVING
        while any(one.poll() is None for one in running) and time.monotonic() < end:
            if self._hurrying.wait(_NAP / 4):
                break
        for one in running:
            if one.poll() is None:
                one.kill()
                one.wait()


def _described(one: _Process) -> str:
    """How a process has ended."""
    assert one.running is not None
    code = one.running.returncode
    how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return f"{one.name} has ended {how}. The last lines of {one.log}:\n{one.last_lines()}"


def _ask(member: Member, request: Struct) -> Any:  # noqa: ANN401  (the request's response)
    """The answer of a controller or a node; None: there is none yet."""
    try:
        with Connection(HOST, member.port, ClientConfig(), timeout=_TIMEOUT) as connection:
            return connection.ask(request)
    except (OSError, PylogError):
        return None
