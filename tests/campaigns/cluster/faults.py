"""The faults, and how a sequence of them is drawn."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from typing import NamedTuple

from pyspark_log.storage.catalog.kafka_files import RECOVERY_POINT, read_offsets
from pyspark_log.storage.record import headers_in
from tests.campaigns.cluster.topics import ALL
from tests.campaigns.members import OURS, KafkaNode, free_bytes, segments_of

#: Longer than the session of a member that sends no heartbeats, in seconds.
_BEYOND_SESSION = (4.0, 5.5)
_SOME_TIME = (0.0, 5.0)


class Fault(NamedTuple):
    """A fault: its kind, a key of KINDS; what it is about; how long it lasts, in seconds."""

    kind: str
    about: tuple
    seconds: float

    def __str__(self):
        return f"{' '.join(map(str, (self.kind, *self.about)))} for {self.seconds:.1f} s"


class Step(NamedTuple):
    """One fault, or two at once, and how much later the second one begins, in seconds."""

    faults: tuple
    later: float

    def __str__(self):
        first, *others = self.faults
        return f"{first}" + "".join(f", and {self.later:.1f} s later {one}" for one in others)


class _Kind:
    """How a fault begins and ends. An object of it is one fault.

    Attributes:
        weight: how often it is drawn beside others.
        lasts: how long, in seconds, from and to.
        alone: no other one is at the same time.
    """

    weight, lasts, alone = 2, _SOME_TIME, False

    def __init__(self, cluster, network, about):
        self.cluster, self.network, self.about = cluster, network, about

    @classmethod
    def draw(cls, chance, kinds):
        """What such a fault is about; `kinds` are those of the members."""
        return (chance.randrange(len(kinds)) + 1,)

    @classmethod
    def members(cls, about):
        """The ids of the members that it is about."""
        return {about[0]}

    @property
    def member(self):
        return self.cluster.members[self.about[0]]

    def begin(self):
        """Lets it begin; gives what there is to say."""

    def end(self):
        """Ends it, but for the restart of what has ended."""

    def finish(self):
        """Waits for what takes its time, when all faults of a step have ended."""

    def may_end(self, node):
        """Whether that node may end by it."""
        return False


class _Ends(_Kind):
    """Its member ends."""

    def may_end(self, node):
        return node is self.member


class Kill(_Ends):
    """A member ends at once, with what it has written."""

    weight = 4

    def begin(self):
        self.member.kill()


class Restart(_Ends):
    """A member ends in order, if it can."""

    def begin(self):
        self.member.process.send_signal(signal.SIGTERM)

    def finish(self):
        self.member.finish()


class Freeze(_Kind):
    """A member does nothing for longer than its session, and then continues where it was."""

    weight, lasts = 3, _BEYOND_SESSION

    def begin(self):
        self.member.pause()

    def end(self):
        self.member.resume()


class Torn(_Ends):
    """The power of a member fails: of what it had not synced yet, the end of a segment is cut off, or other bytes."""

    alone = True

    @classmethod
    def draw(cls, chance, kinds):
        number = chance.randrange(len(kinds)) + 1
        ways = ("zeros", "bytes") if kinds[number - 1] == OURS else ("zeros", "bytes", "cut")
        return number, chance.choice(ALL), chance.choice(ways), chance.randrange(1, 3000)

    def begin(self):
        _, at, way, count = self.about
        self.member.kill()
        path = segments_of(self.member.folder_of(at))[-1]
        if way != "cut":
            with path.open("ab") as file:
                file.write(bytes(count) if way == "zeros" else random.Random(count).randbytes(count))
            return f"{path.name} has {count} bytes more"
        synced = _synced(self.member, at, path)
        size = path.stat().st_size
        os.truncate(path, max(synced, size - count))
        return f"{path.name} has {path.stat().st_size} bytes of {size}; {synced} were synced"


class FullDisk(_Kind):
    """The disk of a member has no room left. A broker of Kafka ends by that."""

    def begin(self):
        ballast = self.member.disk / "ballast"
        with ballast.open("wb") as file:
            size = 0
            while room := free_bytes(self.member.disk):
                with contextlib.suppress(OSError):  # The member has taken a part meanwhile.
                    os.posix_fallocate(file.fileno(), size, room)
                    size += room

    def end(self):
        (self.member.disk / "ballast").unlink()

    def may_end(self, node):
        return node is self.member and isinstance(node, KafkaNode)


class _OfController(_Kind):
    """About the controller that leads the others at that time."""

    found = None

    @classmethod
    def draw(cls, _chance, _kinds):
        return ()

    @classmethod
    def members(cls, _about):
        return set()

    def begin(self):
        number = self.cluster.active_controller()
        if number is None:
            return "no controller leads now"
        self.found = self.cluster.controllers[number]
        self.hit()
        return f"it is {number}"

    def hit(self):
        """The controller was found."""


class KillController(_OfController):
    """The active controller ends at once."""

    def hit(self):
        self.found.kill()

    def may_end(self, node):
        return node is self.found


class FreezeController(_OfController):
    """The active controller does nothing for longer than the others wait."""

    lasts = _BEYOND_SESSION

    def hit(self):
        self.found.pause()

    def end(self):
        if self.found is not None:
            self.found.resume()


class _Cut(_Kind):
    """Nothing that some hosts send to others arrives."""

    lasts = _BEYOND_SESSION

    def pairs(self):
        """Senders and receivers."""
        raise NotImplementedError

    def begin(self):
        for pair in self.pairs():
            self.network.cut(*pair)

    def end(self):
        for pair in self.pairs():
            self.network.join(*pair)


class CutMembers(_Cut):
    """Two members; one way or both."""

    weight = 3

    @classmethod
    def draw(cls, chance, kinds):
        return (*chance.sample(range(1, len(kinds) + 1), 2), chance.choice(("one way", "both ways")))

    @classmethod
    def members(cls, about):
        return {*about[:2]}

    def pairs(self):
        one, other, ways = self.about
        return [(one, other), (other, one)] if ways == "both ways" else [(one, other)]


class CutControllers(_Cut):
    """A member and all controllers; one way or both."""

    @classmethod
    def draw(cls, chance, kinds):
        return chance.randrange(len(kinds)) + 1, chance.choice(("sends", "receives", "both ways"))

    def pairs(self):
        number, ways = self.about
        sent = [(number, other) for other in self.cluster.controllers] if ways != "receives" else []
        received = [(other, number) for other in self.cluster.controllers] if ways != "sends" else []
        return sent + received


class Isolate(_Cut):
    """A member and all others, but for clients."""

    def pairs(self):
        others = [*self.cluster.controllers, *(one for one in self.cluster.members if one != self.about[0])]
        return [pair for one in others for pair in ((self.about[0], one), (one, self.about[0]))]


KINDS = {
    "kill": Kill, "restart": Restart, "freeze": Freeze, "torn tail": Torn, "full disk": FullDisk,
    "kill controller": KillController, "freeze controller": FreezeController, "cut members": CutMembers,
    "cut controllers": CutControllers, "isolate": Isolate,
}  # fmt: skip


def drawn(seed, count, kinds):
    """Steps with this many faults, of which one in five or so has two at once."""
    chance, steps = random.Random(seed), []
    while count:
        first = _fault(chance, kinds)
        faults = (first,)
        if count > 1 and chance.random() < 0.25:
            second = _fault(chance, kinds)
            if _may_meet(first, second):
                faults = (first, second)
        steps.append(Step(faults, chance.uniform(0, 3)))
        count -= len(faults)
    return steps


def _fault(chance, kinds):
    kind = chance.choices([*KINDS], [one.weight for one in KINDS.values()])[0]
    return Fault(kind, KINDS[kind].draw(chance, kinds), chance.uniform(*KINDS[kind].lasts))


def _may_meet(first, second):
    one, other = (KINDS[fault.kind].members(fault.about) for fault in (first, second))
    return not (KINDS[first.kind].alone or KINDS[second.kind].alone or one & other)


def _synced(member, at, path):
    """How many bytes at the start of the active segment a member has synced: those below its recovery point."""
    assert isinstance(member, KafkaNode)
    point = read_offsets(str(member.log_dir / RECOVERY_POINT)).get(at, 0)
    data = path.read_bytes()
    return max((one.end for one in headers_in(data, 0, len(data)) if one.next_offset <= point), default=0)
