"""Names of staged files. Nobody guesses them, or has used them; and they say of which job, planned by whom, a file is.

`HOST.PROCESS.BIRTH.JOB.RANDOM.staged`; BIRTH as in process_id.py, without it where that is not known; the last two in
hex. A host's name can have dots, so it is read from behind.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
from typing import NamedTuple

from pyspark_log.storage.fs import Process

SUFFIX = ".staged"

# No name leads out of the folder. Files of jobs that nobody can name are 32 hex digits.
_NAME = re.compile(
    r"(?:(?P<host>[A-Za-z0-9._-]+)\.(?P<process>\d+)\.(?:(?P<birth>[0-9a-f]{16}-[0-9a-f]{1,16})\.)?(?P<job>[0-9a-f]{8})\.)?"
    r"[0-9a-f]{24,32}\.staged"
)


class Job(NamedTuple):
    """What staged together: one write of Spark's, or one transaction.

    Attributes:
        host: where its owner runs.
        owner: the process without which nobody publishes what it stages.
        mark: tells it from other jobs of the same process.
    """

    host: str
    owner: Process
    mark: str

    @classmethod
    def new(cls, owner: Process | None = None) -> Job:
        """A job of this process, or of another one on this host."""
        host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:64] or "unknown"
        return cls(host, owner or Process.here(), secrets.token_hex(4))

    def new_name(self) -> str:
        """A name for a file of the job."""
        return self._name(secrets.token_hex(12))

    def name_for(self, topic: str) -> str:
        """The name of the job's one file about a topic; the same in all its tasks."""
        return self._name(hashlib.blake2b(topic.encode(), digest_size=12).hexdigest())

    def _name(self, digits: str) -> str:
        birth = f".{self.owner.birth}" if self.owner.birth else ""
        return f"{self.host}.{self.owner.number}{birth}.{self.mark}.{digits}{SUFFIX}"


def is_staged_name(name: str) -> bool:
    """Whether a file of the staging folder can have that name."""
    return _NAME.fullmatch(name) is not None


def job_of(name: str) -> Job | None:
    """The job that a staged file is of; None if its name does not say so."""
    match = _NAME.fullmatch(name)
    if match is None or match["host"] is None:
        return None
    return Job(match["host"], Process(int(match["process"]), match["birth"] or ""), match["job"])
