"""Which members of groups live: each holds a lock on a file of its own for as long as its process lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from typing import TYPE_CHECKING

from pyspark_log.config import INT_MAX
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import clock, files

if TYPE_CHECKING:
    from pyspark_log.storage.groups.log.metadata import GroupMember
    from pyspark_log.storage.groups.members.file_group import FileMember

#: The folder of these files, in the folder of states.
MEMBERS_FOLDER = "members"
# Files of members that have died are deleted after as long (ms). No session is longer.
_OLD_MS = INT_MAX

# Members of this process. A lock of a shared file system may belong to the process, which then must not try its own.
_own = set[str]()
os.register_at_fork(after_in_child=_own.clear)


class MemberFiles:
    """The files of all members in one store."""

    def __init__(self, store: str) -> None:
        """`store`: the store's folder."""
        self._folder = f"{store}/{STATE_FOLDER}/{MEMBERS_FOLDER}"

    def create(self, member_id: str) -> MemberFile:
        """Makes a member that is new one that lives. OSError."""
        files.make_folder(self._folder)
        self._delete_old()
        path = self._path(member_id)
        file = files.create(path)
        file.unshare_at_fork()
        fcntl.flock(file.fd, fcntl.LOCK_EX)
        _own.add(path)
        return MemberFile(file)

    def lives(self, member_id: str) -> bool:
        """Whether the process of a member lives, and has not closed it. OSError."""
        return self._lives(self._path(member_id))

    def beat(self, member_id: str) -> int:
        """Another number whenever the member has looked at its group; -1: it has no file."""
        try:
            return files.status_of(self._path(member_id)).st_mtime_ns
        except FileNotFoundError:
            return -1

    def counts(self, member: GroupMember | FileMember) -> bool:
        """Whether a member is one still: it lives, or its session is not over, if it may come back. OSError."""
        if self.lives(member.member_id):
            return True
        silent_ms = clock.now_ms() - self.beat(member.member_id) // 1_000_000
        return member.instance_id is not None and silent_ms < member.session_timeout

    def delete(self, member_id: str) -> None:
        """Deletes the file of a member that the group has no more."""
        files.unlink(self._path(member_id))

    def _path(self, member_id: str) -> str:
        # A client's id, which comes before, may have any characters.
        return f"{self._folder}/{member_id.rpartition('-')[2]}"

    def _lives(self, path: str) -> bool:
        if path in _own:
            return True
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            return False
        with file:
            try:
                # Shared, so that two processes that ask at the same time do not take each other for the member.
                fcntl.flock(file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _delete_old(self) -> None:
        for name in files.list_folder(self._folder):
            path = f"{self._folder}/{name}"
            with contextlib.suppress(OSError):  # Another process deletes it, or may not be asked.
                if clock.now_ms() - files.status_of(path).st_mtime * 1000 > _OLD_MS and not self._lives(path):
                    files.unlink(path)


class MemberFile:
    """The file of one member, which lives until `close`."""

    def __init__(self, file: files.File) -> None:
        """For MemberFiles."""
        self._file = file
        # Also of a consumer that is not closed and not used any more.
        self._end = weakref.finalize(self, _own.discard, file.path)

    def beat(self) -> None:
        """Shows others that the member is at work. OSError."""
        self._file.set_modified(clock.now_ms() * 1_000_000)

    def close(self) -> None:
        """Ends the member's life."""
        self._end()
        self._file.close()
