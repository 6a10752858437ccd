"""Kafka's file `.kafka_cleanshutdown`: the last run of a node has ended in order, in that broker epoch (KIP-966).

The controllers then trust that the node has all that it had: it remains an eligible leader (ELR). It is JSON, in each
log dir: `{"version":0,"brokerEpoch":7}`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final

from pyspark_log.server.cluster.registration import NO_EPOCH
from pyspark_log.storage.catalog.kafka_files import CLEAN_SHUTDOWN
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields

log = logging.getLogger(__name__)

_VERSION: Final = 0
_LARGEST: Final = 4096


def take_clean_shutdown(log_dirs: Sequence[str]) -> int:
    """Takes the files away, durably, before a run changes anything.

    Returns:
        The broker epoch of the last run; NO_EPOCH: it has not ended in order, for each of the log dirs.

    Raises:
        OSError: one cannot be deleted.
    """
    epochs = set()
    for path in log_dirs:
        name = f"{path}/{CLEAN_SHUTDOWN}"
        epochs.add(_read(name))
        if files.exists(name):
            files.unlink(name)
            files.sync_folder(path)
    return epochs.pop() if len(epochs) == 1 else NO_EPOCH


def note_clean_shutdown(log_dirs: Sequence[str], epoch: int) -> None:
    """Writes the files, durably, after all logs were synced and nothing changes them any more. OSError."""
    data = json.dumps({"version": _VERSION, "brokerEpoch": epoch}, separators=(",", ":")).encode()
    for path in log_dirs:
        files.replace_whole(f"{path}/{CLEAN_SHUTDOWN}", data)


def _read(path: str) -> int:
    try:
        fields = Fields.parse(files.read_whole(path, _LARGEST))
        fields.whole("version", high=_VERSION)
        return fields.whole("brokerEpoch")
    except FileNotFoundError:
        return NO_EPOCH
    except ValueError as error:
        log.warning("%s is invalid, so the last run may not have ended in order: %s", path, error)
        return NO_EPOCH
