"""Sessions of the programs of tests/clients, which all take the same arguments."""

import subprocess
from typing import NamedTuple

from tests.paths import ROOT
from tests.server_tools import PATIENCE

FOLDER = ROOT / ".clients"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_NODE = "js/node_modules/.bin/node"


class Program(NamedTuple):
    """A program over a client library.

    Attributes:
        command: by paths in `.clients`.
        codecs: those that it has.
        groups, describes_groups, idempotent, grows: what its library can do.
    """

    command: tuple[str, ...]
    codecs: tuple[str, ...] = CODECS
    groups: bool = True
    describes_groups: bool = True
    idempotent: bool = True
    grows: bool = True


PROGRAMS = {
    "franz-go": Program(("go/franz-go",)),
    "sarama": Program(("go/sarama",)),
    "kafka-go": Program(("go/kafka-go",), idempotent=False),
    "kafkajs": Program((_NODE, "js/kafkajs.js")),
    "platformatic": Program((_NODE, "js/platformatic.js")),
    # To be built with zstd takes the headers of libzstd.
    "node-rdkafka": Program((_NODE, "js/node-rdkafka.js"), codecs=CODECS[:-1], describes_groups=False),
    "rdkafka": Program(("rust/debug/rdkafka",)),
    "rskafka": Program(("rust/debug/rskafka",), groups=False, describes_groups=False, idempotent=False, grows=False),
}


def use(place, name):
    """Topics are made, written, read, grown and deleted; a group reads in two parts, and is deleted."""
    program = PROGRAMS[name]
    call = _caller(place, program)
    call("create-topic", "made", 2)
    place.wait_for("made", 2)
    for codec in program.codecs:
        call("produce", "made", codec, "plain", 40)
    if program.idempotent:
        call("produce", "made", "gzip", "idempotent", 40)
    call("offsets", "made", 0)
    call("consume", "made", "-", 160)
    if program.groups:
        for _ in range(2):
            call("consume", "made", "g", 80)
    if program.describes_groups:
        call("list-groups")
        call("describe-group", "g")
        call("delete-group", "g")
    if program.grows:
        call("grow-topic", "made", 3)
        place.wait_for("made", 3)
    call("delete-topic", "made")
    place.wait_without("made")


def _caller(place, program):
    command = [str(FOLDER / path) for path in program.command]

    def call(*arguments):
        done = subprocess.run(
            [*command, place.bootstrap, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    return call
