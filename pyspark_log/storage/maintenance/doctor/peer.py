"""The examination by two runs on two hosts: whether locks and written bytes reach from one to the other.

Two runs on the same folder meet in its sub-folder `.pylog-doctor-peer`. Each has a mailbox there, a file that only
it writes, in place, as a message of

    length of the JSON (4 bytes), its CRC-32C (4 bytes, both big-endian), the JSON

which its reader opens again each time: on NFS, a client checks for changes on the server when it opens a file.

1. Meeting. Each run counts `beat` up in its mailbox, and searches for another run whose beat changes (that of a run
   that has ended does not). It names that one in `with`, and has met it when it is named by it, too.
2. Talk. The run with the lower name leads: its message n asks for an operation (operations.py), and the other one's
   message n is the reply. So the checks are those that are made with a second process.
3. End. The leader's last request has the findings, so that both runs report the same. Once that is answered, the
   leader removes the folder. A run that gives up removes it, too; so the other one notices.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance.doctor.check import Bench, conduct
from pyspark_log.storage.maintenance.doctor.checks import SEEN_SECONDS, TWO_HOSTS
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict
from pyspark_log.storage.maintenance.doctor.operations import Operations, perform, result_of
from pyspark_log.storage.record import crc32c

#: How long a run waits for the second one, in seconds.
WAIT_SECONDS = 300.0
#: How long the other run may be silent; it may be waiting for bytes to be seen.
SILENCE_SECONDS = SEEN_SECONDS + 30

_FOLDER = ".pylog-doctor-peer"
_MAILBOX = ".mailbox"
_HEADER = struct.Struct(">II")
_BEAT_SECONDS = 0.2
_POLL_SECONDS = 0.01
_FAREWELL = "farewell"


def examine_with_peer(folder: str, wait: float = WAIT_SECONDS) -> list[Finding]:
    """Waits for a second run on the same folder, best on another host, and tests what must hold between the two.

    Args:
        folder: an existing folder that both can write to.
        wait: for how long the second run is waited for, in seconds.

    Returns:
        The findings, the same ones in both runs.
    """
    place = os.path.join(os.path.abspath(folder), _FOLDER)
    with contextlib.ExitStack() as leaving:
        try:
            os.makedirs(place, files.FOLDER_MODE, exist_ok=True)
            leaving.callback(shutil.rmtree, place, ignore_errors=True)
            line = _Line(place, secrets.token_hex(8))
            them = line.meet(wait)
            if line.leads:
                return _lead(line, place, _second_run(line.introduction, them))
            findings = _follow(line, place)
        except (OSError, _GoneError) as error:
            meaning = "nothing is known of two hosts: start both runs again"
            return [Finding("second run", Verdict.FAILED, str(error), meaning)]
        leaving.pop_all()  # the last reply must stay until the leader has read it
        return findings


class _GoneError(Exception):
    """The other run has ended. No OSError, since the next check would be of no use."""


class _Line:
    """The line to the other run.

    Attributes:
        introduction: what this run says of itself.
        leads: whether this run asks and the other one replies; known after `meet`.
    """

    def __init__(self, place: str, name: str) -> None:
        self.introduction = {"host": socket.gethostname(), "pid": os.getpid(), "boot": state_file.this_boot().hex()}
        self.leads = False
        self._place = place
        self._name = name
        self._other = ""
        self._number = 0
        files.create(self._path(name)).close()

    def meet(self, wait: float) -> dict[str, Any]:
        """Finds the other run; returns its introduction. TimeoutError: none came."""
        deadline = time.monotonic() + wait
        beats: dict[str, int] = {}
        beat = 0
        while time.monotonic() < deadline:
            beat += 1
            self._send({"beat": beat, "introduction": self.introduction})
            for name in self._mailboxes():
                message = self._receive(name)
                # A run that has met this one beats no more.
                if message and name == self._other and message["with"] == self._name:
                    self.leads = self._name < self._other
                    introduction: dict[str, Any] = message["introduction"]
                    return introduction
                if message and not self._other and beats.setdefault(name, message["beat"]) != message["beat"]:
                    self._other = name
            time.sleep(_BEAT_SECONDS)
        raise TimeoutError(f"no second run of pylog doctor --peer was found on this folder within {wait:.0f} s")

    def ask(self, operation: str, *arguments: Any) -> Any:  # noqa: ANN401
        """See Side; for the run that leads."""
        self._number += 1
        self._say([operation, *arguments])
        return result_of(self._hear())

    def request(self) -> Sequence[Any]:
        """The next request; for the run that follows."""
        self._number += 1
        request: Sequence[Any] = self._hear()
        return request

    def reply(self, reply: dict[str, Any]) -> None:
        """Answers the request."""
        self._say(reply)

    def _say(self, body: object) -> None:
        message = {"beat": 0, "introduction": self.introduction, "number": self._number, "body": body}
        try:
            self._send(message)
        except FileNotFoundError:
            raise _GoneError("the second run has given up") from None

    def _hear(self) -> Any:  # noqa: ANN401
        deadline = time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                message = self._receive(self._other)
            except FileNotFoundError:
                raise _GoneError("the second run has given up") from None
            if message and message.get("number") == self._number:
                return message["body"]
            time.sleep(_POLL_SECONDS)
        raise _GoneError(f"the second run has sent nothing for {SILENCE_SECONDS:.0f} s; it hangs, or was stopped")

    def _mailboxes(self) -> list[str]:
        names = (name.removesuffix(_MAILBOX) for name in os.listdir(self._place) if name.endswith(_MAILBOX))
        return [name for name in names if name != self._name]

    def _path(self, name: str) -> str:
        return f"{self._place}/{name}{_MAILBOX}"

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({**message, "with": self._other}).encode()
        with files.open_write(self._path(self._name)) as file:
            file.pwrite(_HEADER.pack(len(data), crc32c(data)) + data, 0)

    def _receive(self, name: str) -> dict[str, Any] | None:
        """What is in a mailbox; None while it is being written."""
        with files.open_read(self._path(name)) as file:
            data = file.pread(file.size(), 0)
        if len(data) < _HEADER.size:
            return None
        length, crc = _HEADER.unpack_from(data)
        content = data[_HEADER.size : _HEADER.size + length]
        if len(content) < length or crc32c(content) != crc:
            return None
        message: dict[str, Any] = json.loads(content)
        return message


def _second_run(us: dict[str, Any], them: dict[str, Any]) -> Finding:
    measured = f"{us['host']} (process {us['pid']}) and {them['host']} (process {them['pid']})"
    # Containers on one machine have names of their own, but one boot.
    one_machine = us["boot"] == them["boot"] if any(bytes.fromhex(us["boot"])) else us["host"] == them["host"]
    if one_machine:
        meaning = "both runs are on one machine: what follows says nothing of two"
        return Finding("second run", Verdict.WARNING, measured, meaning)
    return Finding("second run", Verdict.OK, measured, "what follows was tested between two hosts")


def _lead(line: _Line, place: str, second_run: Finding) -> list[Finding]:
    folder = f"{place}/{secrets.token_hex(8)}"
    os.mkdir(folder, files.FOLDER_MODE)
    line.ask("begin", os.path.basename(folder))
    mine = Operations(folder)
    try:
        findings = [second_run, *(conduct(check, Bench(folder, mine, line)) for check in TWO_HOSTS)]
    finally:
        mine.close()
    with contextlib.suppress(_GoneError):
        line.ask(_FAREWELL, [finding.to_dict() for finding in findings])
    return findings


def _follow(line: _Line, place: str) -> list[Finding]:
    _, name = line.request()
    line.reply({"result": None})
    operations = Operations(f"{place}/{name}")
    try:
        while True:
            request = line.request()
            if request[0] == _FAREWELL:
                break
            line.reply(perform(operations, request))
    finally:
        operations.close()
    line.reply({"result": None})
    return [Finding.from_dict(content) for content in request[1]]
