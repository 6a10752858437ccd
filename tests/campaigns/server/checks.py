"""What must be true of the store when all have come to their end."""

from collections import Counter, defaultdict

from pyspark_log import Store
from tests.campaigns.clients import KEYS, PUBLISHED, acknowledged, ranges
from tests.campaigns.server.queries import COPIED, THROUGH
from tests.store_tools import faults


def check(path, folder, actors, ends):
    """What is wrong, and how many records there are.

    Args:
        path: the store.
        folder: where the actors have noted what they did.
        actors: the names of each kind, by kind, in the order in which they were started.
        ends: the end of each partition of the topic that consumers read.
    """
    with Store.open(path) as store:
        log = [values(store, "t", partition) for partition in range(len(ends))]
        found = [*_copied(store, log), *_through(store, log), *_readers(store, folder, actors, ends)]
        compacted = {row["key"]: row["value"].decode() for row in _rows(store, "c", 0)}
        kept = values(store, "short", 0)
    times = Counter(value for part in log for value in part)
    for kind in ("idempotent", "plain", "java"):
        for name in actors[kind]:
            # The values of Java's producer begin with the number of its process.
            start = f"{name.rpartition('-')[2]}." if kind == "java" else f"{name}:"
            found += _producer(name, start, acknowledged(folder, name), times, log, once=kind != "plain")
    found += _keyed(folder, actors["keyed"], compacted)
    found += _retained(folder, actors["short"], kept)
    found += _published(times)
    found += [str(one) for one in faults(str(path))]
    return found, sum(times.values())


def values(store, topic, partition):
    """The values of a partition, in order."""
    return [row["value"].decode() for row in _rows(store, topic, partition)]


def _rows(store, topic, partition):
    return [row for rows in store.read(topic, partition) for row in rows.to_pylist()]


def _producer(name, start, noted, times, log, *, once):
    """Each acknowledged value is there, and each of an idempotent producer once, in the order in which it was sent."""
    lost = [value for value in noted if not times[value]]
    doubled = [value for value in times if once and value.startswith(start) and times[value] > 1]
    found = [f"{value} was acknowledged, and is lost" for value in lost[:3]]
    found += [f"{value} is there {times[value]} times" for value in doubled[:3]]
    for part in log:
        mine = [int(value.removeprefix(start)) for value in part if value.startswith(start)]
        if once and mine != sorted(mine):
            found.append(f"{name}: its records are not in order")
    return found


def _keyed(folder, names, compacted):
    """The compacted topic has for each key the last acknowledged value, or a later one."""
    last = {}
    for place, name in enumerate(names):
        for value in acknowledged(folder, name):
            number = int(value.rpartition(":")[2])
            last[number % KEYS] = (place, number)
    found = []
    for key, expected in last.items():
        name, _, number = compacted.get(f"keyed-1-{key}".encode(), f"{names[0]}:-1").rpartition(":")
        if (names.index(name), int(number)) < expected:
            found.append(f"key {key}: {expected} was acknowledged, and {name}:{number} is there")
    return found


def _retained(folder, names, kept):
    """Of a topic with retention the last acknowledged values are there, once each, and the first ones are not."""
    noted = [value for name in names for value in acknowledged(folder, name)]
    there = set(kept)
    first = next((place for place, value in enumerate(noted) if value in there), len(noted))
    found = [f"{value} was acknowledged later than one that is kept, and is lost"
             for value in noted[first:] if value not in there][:3]  # fmt: skip
    if len(there) < len(kept):
        found.append("the topic with retention has records twice")
    if not 0 < first < len(noted):
        found.append(f"retention has removed {first} of {len(noted)} records")
    return found


def _published(times):
    """Each publish is there as a whole, once."""
    published = Counter(value.split(":")[1] for value in times if value.startswith("query:"))
    found = [
        f"publish {number} has {count} of {PUBLISHED} records"
        for number, count in published.items()
        if count != PUBLISHED
    ]
    found += [f"{value} is there twice" for value in times if value.startswith("query:") and times[value] > 1]
    if sorted(map(int, published)) != list(range(len(published))):
        found.append("a publish is missing")
    return found


def _readers(store, folder, actors, ends):
    """The members of each group have together read each record."""
    found = []
    for group, kinds in (("readers", ("consumer", "javareader")), ("modern", ("javamodern",))):
        read = defaultdict(set)
        for name in (name for kind in kinds for name in actors[kind]):
            for partition, first, last in ranges(folder, name):
                read[partition].update(range(first, last + 1))
        for at, end in ends.items():
            offsets = {row["offset"] for row in _rows(store, "t", at.partition)}
            if missing := offsets - read[at.partition]:
                found.append(f"{at}: {group} has not read {len(missing)} of {end} records, e.g. {min(missing)}")
    return found


def _copied(store, log):
    """The query over the files has published each record once, in order."""
    return [
        f"{COPIED}-{partition}: it is not what is in t-{partition}"
        for partition, part in enumerate(log)
        if values(store, COPIED, partition) != part
    ]


def _through(store, log):
    """The query through the server has written each record once or more."""
    return [
        f"{THROUGH}-{partition}: {len(lost)} records of t-{partition} are missing"
        for partition, part in enumerate(log)
        if (lost := Counter(part) - Counter(values(store, THROUGH, partition)))
    ]
