"""Hosts of a cluster on this machine: network namespaces on a bridge, of which any may lose its way to any other."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

_PREFIX = "pylog-faults"
_NAMESPACES = Path("/run/netns")
# For tests of networks (RFC 2544): no machine has these addresses.
_NET = "198.18"
_CLIENTS = 254
# An Ethernet address that no host has: frames to it are dropped without a word, as by a broken network.
_NOWHERE = 255


class Host(NamedTuple):
    """A host of the network.

    Attributes:
        number: the last part of its address.
        namespace: its name.
        address: its IP address.
    """

    number: int
    namespace: str
    address: str

    @property
    def enter(self):
        """The words that run a command there."""
        return ("nsenter", f"--net={_NAMESPACES / self.namespace}")


def missing():
    """Why there can be no such network here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nsenter", "mount", "umount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    name = f"{_PREFIX}-{_run_of(os.getpid())}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces can be made here: {made.stderr.strip()}"
    _ip(f"netns del {name}")
    return ""


class Network:
    """Hosts with these numbers. This process reaches them all, and is reached by them.

    It and all processes on its hosts end with the `with` block. What runs that were killed have left is removed first.

    Attributes:
        hosts: by their numbers.
    """

    def __init__(self, numbers):
        _remove_leftovers()
        self._run = _run_of(os.getpid())
        self._bridge = f"plf{os.getpid()}"
        self._net = f"{_NET}.{_free_net()}"
        self.hosts = {
            number: Host(number, f"{_PREFIX}-{self._run}-{number}", f"{self._net}.{number}") for number in numbers
        }
        self._mounts = []

    def __enter__(self):
        try:
            _ip(
                f"link add {self._bridge} type bridge",
                f"addr add {self._net}.{_CLIENTS}/24 dev {self._bridge}",
                f"link set {self._bridge} up",
            )
            for host in self.hosts.values():
                _ip(
                    f"netns add {host.namespace}",
                    f"link add {self._outer(host)} type veth peer name eth0 netns {host.namespace} "
                    f"address {_mac(host.number)}",
                    f"link set {self._outer(host)} master {self._bridge} up",
                )
                _ip(
                    "link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up",
                    namespace=host.namespace,
                )  # fmt: skip
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        _remove(self._run)

    def disk(self, folder, size):
        """Makes an empty folder a file system of that size (bytes), in memory, until the network ends."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", f"{_PREFIX}-{self._run}", folder], check=True)

    def cut(self, sender, receiver):
        """Drops what one host sends to another, not what comes back; both by their numbers."""
        self._lead(sender, receiver, _mac(_NOWHERE))

    def join(self, sender, receiver):
        """The opposite of `cut`."""
        self._lead(sender, receiver, _mac(receiver))

    def _lead(self, sender, receiver, mac):
        _ip(
            f"neigh replace {self.hosts[receiver].address} lladdr {mac} dev eth0 nud permanent",
            namespace=self.hosts[sender].namespace,
        )

    def _outer(self, host):
        return f"{self._bridge}h{host.number}"


def _mac(number):
    return f"02:00:c6:12:00:{number:02x}"


def _ip(*commands, namespace=None):
    """Runs commands of `ip`."""
    inside = [] if namespace is None else ["-n", namespace]
    done = subprocess.run(
        ["ip", *inside, "-batch", "-"], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip: {commands}: {done.stderr.strip()}")


def _free_net():
    """The third part of a net that no interface here has."""
    listed = json.loads(subprocess.run(["ip", "-j", "addr"], capture_output=True, text=True, check=True).stdout)
    taken = {one["local"].rpartition(".")[0] for link in listed for one in link["addr_info"]}
    return next(number for number in range(256) if f"{_NET}.{number}" not in taken)


# ---- what runs leave


def _run_of(pid):
    """The name of the run of a process: its id, and when it has started, as ids are used again."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return f"{pid}-{fields[19]}"


def _is_alive(run):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _run_of(int(run.partition("-")[0])) == run
    return False


def _namespaces():
    """The runs of all namespaces of this program, with their names."""
    names = os.listdir(_NAMESPACES) if _NAMESPACES.is_dir() else []
    return [(found[1], name) for name in names if (found := re.fullmatch(rf"{_PREFIX}-(\d+-\d+)-\w+", name))]


def _mounts():
    """The runs of all file systems of this program, with their places."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    return [(line[0].removeprefix(f"{_PREFIX}-"), line[1]) for line in lines if line[0].startswith(f"{_PREFIX}-")]


def _remove_leftovers():
    """Removes what runs have left that have ended without it."""
    for run in {run for run, _ in (*_namespaces(), *_mounts())}:
        if not _is_alive(run):
            _remove(run)


def _remove(run):
    """Ends the processes of a run, and removes its namespaces, its bridge and its file systems."""
    names = [name for of, name in _namespaces() if of == run]
    for name in names:
        _end_processes(name)
    bridge = f"plf{run.partition('-')[0]}"
    for link in json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout):
        if link["ifname"] == bridge or link.get("master") == bridge:
            _ip(f"link del {link['ifname']}")
    for name in names:
        _ip(f"netns del {name}")
    for of, place in _mounts():
        if of == run:
            subprocess.run(["umount", place], check=True)


def _end_processes(namespace):
    """Kills what runs in a namespace; returns when it has ended."""
    deadline = time.monotonic() + 30
    while True:
        listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
        living = [int(pid) for pid in listed.stdout.split() if not _is_zombie(pid)]
        if not living:
            return
        assert time.monotonic() < deadline, f"{living} in {namespace} do not end"
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _is_zombie(pid):
    """Whether a process has ended, and its parent has not noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
