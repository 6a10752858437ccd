"""Which step of a micro-batch a query is at, by what it has left in the store and in Spark's checkpoint.

Nothing here waits, takes a lock or changes anything; on a stopped driver the answer is exact.
"""

import json
import os
from pathlib import Path

from pyspark_log.storage.catalog import PUBLISH_TOPIC
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.log.state.partition_state import Intent
from pyspark_log.storage.publish.staging import manifest

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
TIDYING = "applied, being tidied up"
STEPS = (STARTING, BETWEEN, PLANNED, STAGED, MANIFEST, DECIDED, INTENT, PARTLY, APPLIED, REPLAY)
#: Those of a job, whose publishes are one-off.
STEPS_OF_JOB = (STARTING, PLANNED, STAGED, MANIFEST, DECIDED, INTENT, PARTLY, TIDYING)


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
    # The order of these reads matters: what is read later can only be newer.
    if decided < planned:
        if planned == committed:
            return BETWEEN
        # The other query's output is small and travels in its commit messages.
        return _undecided(
            store,
            topic,
            max(since, os.stat(f"{checkpoint}/offsets/{planned}").st_mtime),
            in_files=topic.startswith("stateless"),
        )
    if decided > planned or _newest(f"{checkpoint}/commits") >= planned:
        return BETWEEN
    return _decided(store, last, since)


def step_of_job(store, topic, since):
    """The step of a job started at `since` (in seconds) that alone publishes to `topic`.

    Its start and its reading look alike: both are PLANNED.
    """
    decisions = store.decisions
    decisions.follow()
    last = max(decisions.last.values(), key=lambda one: one.offset, default=None)
    if last is not None and last.time / 1000 >= since:
        step = _decided(store, last, since)
        return TIDYING if step == APPLIED else step
    return _undecided(store, topic, since, in_files=True)


def _was_decided(store, name):
    """Whether a decision has named a manifest, also one of a publisher that was forgotten since."""
    return any(name.encode() in path.read_bytes() for path in Path(store.path).glob(f"*/{PUBLISH_TOPIC}-0/*.log"))


def _undecided(store, topic, since, *, in_files):
    folder = f"{store.path}/{STAGING_FOLDER}"
    found = PLANNED
    for entry in list(os.scandir(folder)) if os.path.isdir(folder) else ():
        try:
            if entry.stat().st_mtime < since:
                continue  # What an earlier attempt has left.
            if not entry.name.endswith(manifest.SUFFIX):
                if in_files:
                    found = STAGED
            elif topic.encode() in Path(entry.path).read_bytes():
                return TIDYING if _was_decided(store, entry.name) else MANIFEST
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
