"""Documents of a store's servers, such as their list of users: each as a whole in an object, which a decision names.

So of several changes at the same time none is lost, whatever follows the log learns of each, and what is secret is in
no entry and no checkpoint: these are read by each process of the store, and the objects of documents by servers alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pyspark_log.errors import DescriptionError, ObjectStoreError, PylogError
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.publish_log import naming, proposals
from pyspark_log.storage.publish_log.entries.changes import Document
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.state import State
from pyspark_log.storage.record import crc32c

_BACK = "bring back an older version of the object"


class _Held(NamedTuple):
    """A document as of the state of a number.

    Attributes:
        data: its bytes; None: its object is not there.
        problem: why they are of no use; "": they are.
    """

    number: int
    document: Document
    data: bytes | None
    problem: str


class Documents:
    """The documents of a store, in memory, as they were when it was last looked at. Thread-safe."""

    def __init__(self, log: PublishLog) -> None:
        """Reads nothing yet."""
        self._log, self._lock = log, threading.Lock()
        self._held = dict[str, _Held]()

    def where(self, document: Document) -> str:
        """Where a document is, for errors."""
        return f"{self._log.objects.address}/{document.object}"

    def look(self) -> None:
        """Takes in what was decided since. May wait. Raises as PublishLog.follow."""
        self.take(self._log.follow())

    def take(self, state: State) -> None:
        """Reads the documents of a state that are not in memory, or could not be read before. May wait.

        One that cannot be read is an error when it is asked for. Raises as PublishLog.follow.
        """
        for document in state.documents.values():
            held = self._held.get(document.name)
            if held is not None and (held.number > state.number or (held.document == document and not held.problem)):
                continue
            data, problem = self._read(document)
            if data is None and (newest := self._log.follow()).documents.get(document.name) != document:
                self.take(newest)  # It was deleted since, as another one is in its place.
            else:
                self._hold(_Held(state.number, document, data, problem))

    def _read(self, document: Document) -> tuple[bytes | None, str]:
        """As of _Held."""
        try:
            stored = self._log.objects.get(document.object)
        except ObjectStoreError as error:
            return b"", f"{document.name}: {error}"
        if stored is None:
            return None, f"{self.where(document)} is missing: {_BACK}, or begin with an empty list by adding to it"
        if crc32c(stored.data) != document.crc:
            return b"", f"{self.where(document)} is damaged: {_BACK}; or delete it, and begin with an empty list"
        return bytes(stored.data), ""

    def _hold(self, new: _Held) -> None:
        with self._lock:
            held = self._held.get(new.document.name)
            # Another thread may have read a newer one meanwhile.
            if held is None or held.number <= new.number:
                self._held[new.document.name] = new

    def current(self, name: str) -> tuple[Document, bytes] | None:
        """A document with its bytes, as it is in memory; None: there is none. At once.

        Raises:
            DescriptionError: it is missing, damaged, or cannot be read.
        """
        held = self._held.get(name)
        if held is None:
            return None
        if held.problem or held.data is None:
            raise DescriptionError(held.problem)
        return held.document, held.data

    def change(self, name: str, make: Callable[[tuple[Document, bytes] | None], bytes]) -> None:
        """Replaces a document by what `make` returns, which is called again if another process was faster. May wait.

        Raises:
            DescriptionError: as `current`, but for one that is missing; nothing was changed.
            OutcomeUnknownError: it is changed or not.
            PylogError: as PublishLog.decide; nothing was changed.
        """
        objects = self._log.objects
        while True:
            self.look()
            held = self._held.get(name)
            before = None if held is None else held.document
            data = make(None if held is None or held.data is None else self.current(name))
            after = Document(name, naming.new(naming.DOCUMENTS, now_ms()), crc32c(data))
            objects.put(after.object, data)
            entry = self._log.decide(partial(proposals.change_document, before=before, after=after))
            unused = after if entry is None else before
            if unused is not None:
                # What was secret goes at once. What is left after an error, `clean` deletes.
                with contextlib.suppress(PylogError):
                    objects.delete([unused.object])
            if entry is not None:
                return
