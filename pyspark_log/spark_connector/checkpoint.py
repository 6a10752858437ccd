"""The checkpoint of a streaming query, as its sink sees it: where it is, and what it has planned."""

from __future__ import annotations

import hashlib
import os
from urllib.parse import unquote, urlsplit


def location_of(option: str, session: str, query_name: str) -> str:
    """Where a query's checkpoint is, by Spark's rule, in one spelling for every run of the query.

    Args:
        option: the option checkpointLocation, or "".
        session: the session's spark.sql.streaming.checkpointLocation, or "".
        query_name: the query's name, or "".

    Returns:
        "" if Spark chooses another place each time.
    """
    if option:
        return same_location(option)
    return same_location(f"{session.rstrip('/')}/{query_name}") if session and query_name else ""


def same_location(checkpoint: str) -> str:
    """A checkpoint location in one spelling, so that the same folder is the same text in every run of a query.

    A local path may be given with or without `file:`, relative or absolute; other URIs stay as they are.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in ("", "file"):
        return checkpoint.rstrip("/")
    return os.path.abspath(unquote(parts.path) if parts.scheme else checkpoint)


def plan_of(location: str, batch_id: int) -> str:
    """What tells the input that Spark has planned for a micro-batch from that of any other.

    Spark writes a micro-batch's offsets to its checkpoint before it runs, with the time at which it does, and reads
    them there when it runs it again. Where this process cannot read them, the location has to do.

    Args:
        location: of the checkpoint, in the spelling of `location_of`.
        batch_id: which micro-batch.

    Returns:
        "" if nothing is known.
    """
    if location.startswith("/"):
        try:
            with open(f"{location}/offsets/{batch_id}", "rb") as file:
                return "offsets " + hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        except OSError:
            pass
    return f"at {location}" if location else ""
