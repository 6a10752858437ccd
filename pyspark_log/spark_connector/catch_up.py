"""Finishes what publishers that died have left undone, so that readers see it."""

from __future__ import annotations

import logging
import weakref

from pyspark_log.errors import PylogError
from pyspark_log.storage.publish import publishing
from pyspark_log.storage.store import Store

log = logging.getLogger(__name__)

# An idle query looks a hundred times a second; the same trouble is worth one line.
_last_warning: weakref.WeakKeyDictionary[Store, str] = weakref.WeakKeyDictionary()


def show_decided(store: Store) -> None:
    """Applies output that was decided and is not visible yet. Best effort: a reader never fails for it."""
    if not store.writable:
        return
    try:
        publishing.help_apply(store)
    except (PylogError, OSError) as error:
        if _last_warning.get(store) != str(error):
            _last_warning[store] = str(error)
            log.warning("%s: decided output could not be made visible now: %s", store.path, error)
