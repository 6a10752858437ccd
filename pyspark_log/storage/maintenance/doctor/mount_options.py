"""Assesses a file system by its type and mount options, before any test.

Some mounts keep locks within one host. Every test on that host passes there, and two hosts still write over
each other; only the options show it (or a test from two hosts, see peer.py).
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log.storage.fs.mounts import NFS, SHARED, SMB, Mount, mount_of
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict

_RECOVER_LOST_LOCKS = "/sys/module/nfs/parameters/recover_lost_locks"

_MEMORY = frozenset({"tmpfs", "ramfs"})

_ONE_HOST = "locks hold on this host only: a store that several hosts write to would lose records; "


class _Rule(NamedTuple):
    types: frozenset[str]
    options: frozenset[str]  # any of them; empty: whatever the options
    verdict: Verdict
    meaning: str


# The first match counts, so the worst comes first.
_RULES = (
    _Rule(
        NFS,
        frozenset({"nolock", "nolocks", "locallocks", "local_lock=flock", "local_lock=all"}),
        Verdict.FAILED,
        _ONE_HOST + "mount it without nolock and local_lock",
    ),
    _Rule(frozenset({"lustre"}), frozenset({"localflock"}), Verdict.FAILED, _ONE_HOST + "mount it with -o flock"),
    _Rule(
        frozenset({"lustre"}),
        frozenset({"noflock"}),
        Verdict.FAILED,
        "there are no locks, so nothing can be written: mount it with -o flock",
    ),
    _Rule(SMB, frozenset({"nobrl"}), Verdict.FAILED, _ONE_HOST + "mount it without nobrl"),
    _Rule(
        NFS,
        frozenset({"soft", "softerr"}),
        Verdict.WARNING,
        "a server that is slow for a while makes writes fail with an unknown outcome: mount it with -o hard",
    ),
    _Rule(_MEMORY, frozenset(), Verdict.WARNING, "kept in memory: everything in it is gone after a restart"),
    _Rule(
        frozenset({"overlay"}),
        frozenset(),
        Verdict.WARNING,
        "a container's own layer: gone with the container; keep a store on a volume",
    ),
    _Rule(
        frozenset({"ext3", "ext4", "xfs", "btrfs"}),
        frozenset({"nobarrier", "barrier=0"}),
        Verdict.WARNING,
        "synced records can be lost in a power loss: mount it with barriers",
    ),
    _Rule(
        SHARED,
        frozenset(),
        Verdict.WARNING,
        "a shared file system: if several hosts use the store, test two of them at once with --peer",
    ),
)
_FUSE = _Rule(
    frozenset(),
    frozenset(),
    Verdict.WARNING,
    "a program serves this mount (FUSE): if several hosts use the store, test two of them at once with --peer",
)
_LOCAL = _Rule(frozenset(), frozenset(), Verdict.OK, "a local file system, as far as its type shows")


def examine_mount(folder: str) -> Finding:
    """Assesses the file system of a folder without testing it."""
    try:
        mount = mount_of(folder)
    except OSError as error:
        return _unknown(str(error))
    return assess(mount, recovers_lost_locks=_recovers_lost_locks()) if mount else _unknown("not in the list of mounts")


def assess(mount: Mount, *, recovers_lost_locks: bool = False) -> Finding:
    """What type and options mean.

    Args:
        mount: the file system.
        recovers_lost_locks: the setting of Linux's NFS client (module parameter `recover_lost_locks`).
    """
    if mount.type == "nfs4" and recovers_lost_locks:
        rule = _Rule(
            NFS,
            frozenset(),
            Verdict.FAILED,
            "a host that was cut off keeps writing as if it still had its lock, over the records of others: set "
            "the parameter recover_lost_locks of the kernel module nfs to N",
        )
    elif mount.is_fuse:
        rule = _FUSE
    else:
        rule = next((rule for rule in _RULES if _fits(rule, mount)), _LOCAL)
    options = sorted(rule.options & mount.options)
    measured = f"{mount.type} on {mount.point}" + (f" with {','.join(options)}" if options else "")
    return Finding("file system", rule.verdict, measured, rule.meaning)


def _fits(rule: _Rule, mount: Mount) -> bool:
    return mount.type in rule.types and (not rule.options or bool(rule.options & mount.options))


def _unknown(reason: str) -> Finding:
    return Finding("file system", Verdict.WARNING, reason, "the system does not say what file system this is")


def _recovers_lost_locks() -> bool:
    try:
        with open(_RECOVER_LOST_LOCKS, encoding="ascii") as file:
            return file.read().strip() in ("Y", "1")
    except OSError:
        return False
