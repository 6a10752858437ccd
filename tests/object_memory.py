"""Objects in the memory of this process, in place of a server.

The library of the object stores has them, with the condition of a put if absent; requests go all the way to it. All
that is opened at one address in this process has the same objects; other processes see none of them.
"""

import re

from pyspark_log.storage.objects import objects as objects_module

#: The bucket whose objects are in memory.
BUCKET = "memory"


def keep_in_memory(monkeypatch):
    """Until that is undone, what is below s3://memory is in memory. Each address is a place of its own."""
    kept, connect = {}, objects_module._connect

    def connect_to(library, address, options):
        if address.place != BUCKET:
            return connect(library, address, options)
        return kept.setdefault(address, library.store.MemoryStore())

    monkeypatch.setattr(objects_module, "_connect", connect_to)
    # A server's answer to a range after the end is 416; memory has words for it.
    beyond = rf"{objects_module._BEYOND.pattern}|Invalid range: Wanted range starting at"
    monkeypatch.setattr(objects_module, "_BEYOND", re.compile(beyond))
