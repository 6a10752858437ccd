"""Which step of a micro-batch a query is at, by what it has left in the store and in Spark's checkpoint.

Nothing here waits, takes a lock or changes anything; on a stopped driver the answer is exact.
"""

import json
import os
from pathlib import Path

from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.log.state_file import Intent
from pyspark_log.storage.publish import manifest

STARTING = "starting"
BETWEEN = "between micro-batches"
PLANNED = "planned: reading, transforming"
STAGED = "output in staged files, no manifest"
MANIFEST = "manifest written, not decided"
DECIDED = "decided, applied nowhere"
INTENT = "applying: an intent in a state file"
PARTLY = "applied in some partitions"
APPLIED = "applied, not in Spark's commit log"
REPLAY = "repeats a published micro-batch"
STEPS = (STARTING, BETWEEN, PLANNED, STAGED, MANIFEST, DECIDED, INTENT, PARTLY, APPLIED, REPLAY)


def _newest(folder):
    """The highest number that names a file, which is the last micro-batch; -1 if there is none."""
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def publisher_of(checkpoint):
    """The publisher id of the query; None before Spark has given it an id."""
    try:
        with open(f"{checkpoint}/metadata", encoding="utf-8") as file:
            return "spark-" + json.load(file)["id"]
    except (FileNotFoundError, ValueError):
        return None


def last_decision(store, checkpoint):
    """The query's last decision; None if there is none."""
    decisions = store.decisions
    decisions.follow()
    return decisions.last.get(publisher_of(checkpoint))


def step_of(store, topic, checkpoint, since):
    """The step of the query that writes `topic`, started at `since` (in seconds; None: not yet)."""
    planned, committed = _newest(f"{checkpoint}/offsets"), _newest(f"{checkpoint}/commits")
    if since is None or planned < 0:
        return STARTING
    last = last_decision(store, checkpoint)
    decided = -1 if last is None else last.number
    # The order of these looks: what is read later can only be newer.
    if decided < planned:
        if planned == committed:
            return BETWEEN
        return _undecided(store, topic, max(since, os.stat(f"{checkpoint}/offsets/{planned}").st_mtime))
    if decided > planned or _newest(f"{checkpoint}/commits") >= planned:
        return BETWEEN
    return _decided(store, last, since)


def _undecided(store, topic, since):
    folder = f"{store.path}/{STAGING_FOLDER}"
    found = PLANNED
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        try:
            if entry.stat().st_mtime < since:
                continue  # What an earlier attempt has left.
            if not entry.name.endswith(manifest.SUFFIX):
                # The other query's output is small and travels in its commit messages.
                if topic.startswith("stateless"):
                    found = STAGED
            elif topic.encode() in Path(entry.path).read_bytes():
                return MANIFEST
        except FileNotFoundError:
            continue
    return found


def _decided(store, last, since):
    states = [store.logs.reader(place.topic, place.partition).state() for place in last.places]
    applied = [state.applied >= last.offset for state in states]
    if any(state.intent is Intent.APPLY for state in states):
        return INTENT
    if not all(applied):
        return PARTLY if any(applied) else DECIDED
    return REPLAY if last.time / 1000 < since else APPLIED
