"""A server that gives the same answers whenever a recording is replayed, and however fast.

`python -m tests.recordings.timeless` takes some of the options of `pylog serve`.
"""

import argparse
import contextlib
from pathlib import Path

from pyspark_log import Store
from pyspark_log.server import ServerConfig, serve
from pyspark_log.server.coordinator import Settings
from pyspark_log.storage.groups.committed_offsets import place_of
from tests.server_tools import Server, served

#: Settings of the store, and of the broker with which recordings are made. Records are of the time of the recording.
#: Fetch sessions would have other partitions in each answer, by how fast each side is.
SETTINGS = {
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
    "max.incremental.fetch.session.cache.slots": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class TimelessServer(Server):
    """Groups of KIP-848 get an assignment at once, as those of the recorded broker; else there is one a second."""

    program = ("-m", "tests.recordings.timeless")


@contextlib.contextmanager
def served_timeless(folder):
    """Such a server, over a new store in a folder."""
    with Store.create(folder / "store", SETTINGS) as store:
        # The recorded broker has the internal topic when a session begins.
        place_of(store.logs, "")
    with served(folder / "store", folder, kind=TimelessServer) as server:
        yield server


def main():
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser()
    for name in ("--store", "--listen", "--ready-file"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    host, port = arguments.listen.split(":")
    groups = Settings(initial_rebalance_delay=0, assignment_interval=0)
    serve(
        Store.open(arguments.store),
        ServerConfig(host, int(port), groups=groups),
        lambda _: Path(arguments.ready_file).touch(),
    )


if __name__ == "__main__":
    main()
