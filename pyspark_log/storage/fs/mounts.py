"""The file system that a folder is on, by the system's own table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

_MOUNTINFO = "/proc/self/mountinfo"

NFS: Final = frozenset({"nfs", "nfs4"})
SMB: Final = frozenset({"cifs", "smb3", "smbfs"})
#: Types of file systems that several hosts can have mounted at once.
SHARED: Final = NFS | SMB | {"lustre", "ceph", "gpfs", "beegfs", "gfs2", "ocfs2", "9p", "virtiofs", "afs"}


class Mount(NamedTuple):
    """A mounted file system.

    Attributes:
        point: the folder where it is mounted.
        type: the system's name for it.
        options: all options that the system reports, of the mount and of the file system.
    """

    point: str
    type: str
    options: frozenset[str]

    @property
    def is_shared(self) -> bool:
        """Whether other hosts may write to it too. True for FUSE, where that is not known."""
        return self.type in SHARED or self.is_fuse

    @property
    def is_fuse(self) -> bool:
        """Whether it is a FUSE file system, which a program serves."""
        return self.type.startswith("fuse") or self.type == "macfuse"


@cache
def is_shared(folder: str) -> bool:
    """Whether other hosts may write to a folder; cached per process. False if the system does not report it."""
    try:
        mount = mount_of(folder)
    except OSError:
        return False
    return mount is not None and mount.is_shared


def mount_of(folder: str) -> Mount | None:
    """The file system that holds a folder, if the system lists it. OSError."""
    return find_mount(_mounts(), folder)


def parse_mountinfo(text: str) -> list[Mount]:
    """Parses Linux's /proc/self/mountinfo (proc_pid_mountinfo(5)), in its order."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        options = {*fields[5].split(","), *tail[2].split(",")}
        mounts.append(Mount(_unescape(fields[4]), tail[0], frozenset(options)))
    return mounts


def parse_mount_command(text: str) -> list[Mount]:
    """Parses the output of `mount` on macOS: `SOURCE on POINT (TYPE, OPTION, ...)`."""
    matches = (re.fullmatch(r".+? on (/.*) \((.+)\)", line) for line in text.splitlines())
    mounts = []
    for match in matches:
        if match:
            kind, *options = match[2].split(", ")
            mounts.append(Mount(match[1], kind, frozenset(options)))
    return mounts


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _mounts() -> list[Mount]:
    if sys.platform == "darwin":
        import subprocess  # noqa: PLC0415  (other systems need no command for it)

        try:
            listed = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=True, timeout=10)
        except subprocess.SubprocessError as error:
            raise OSError(f"/sbin/mount: {error}") from error
        return parse_mount_command(listed.stdout)
    with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
        return parse_mountinfo(file.read())


def find_mount(mounts: Iterable[Mount], folder: str) -> Mount | None:
    """The mount that a folder is on: the deepest one, and of several in one place the last."""
    real = os.path.realpath(folder)
    deepest: Mount | None = None
    for mount in mounts:
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and (deepest is None or len(mount.point) >= len(deepest.point)):
            deepest = mount
    return deepest
