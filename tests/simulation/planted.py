"""Faults that are planted in the product while a simulation runs: each must be found."""

from pyspark_log.errors import OutcomeUnknownError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator.coordinator import Coordinator
from pyspark_log.server.served.objects.groups import ObjectGroups
from pyspark_log.server.served.objects.servers import DEAD, ObjectServers
from pyspark_log.server.served.servers import Server
from pyspark_log.server.transactions import transitions
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.state import State

_create, _decide, _publish, _take_in = PublishLog._create, PublishLog.decide, State._publish, State._take_in_servers


def create_after_a_check(objects, key, data):
    if objects.get(key) is not None:
        return False
    objects.put(key, data)
    return True


def take_each_refusal_for_anothers(log, entry, data):
    is_decided, is_certain, other = _create(log, entry, data)
    if is_decided and not is_certain:
        return False, is_certain, log._read(entry.number)
    return is_decided, is_certain, other


def answer_before_it_is_decided(log, propose):
    try:
        return _decide(log, propose)
    except OutcomeUnknownError:
        if propose.__qualname__.startswith("Collector."):
            return None
        raise


def apply_no_offsets(state, transaction, time):
    _publish(state, transaction._replace(offsets=()), time)


def show_at_once(state, entry):
    _take_in(state, entry)
    for part in entry.staged:
        if part.producer_id in state.open:
            transaction = state.open[part.producer_id]
            _publish(state, transaction._replace(offsets=()), entry.origin.time)
            state.open[part.producer_id] = transaction._replace(pieces=())


def judge_by_the_time_of_day(self):
    state = self._follower.state
    alive = [
        Server(node_id, *server.place)
        for node_id, server in sorted(state.servers.items())
        if server.run == self.run or now_ms() - server.time < DEAD * 1000
    ]
    self._alive = tuple(alive) if len(alive) > 1 else (Server(self.node_id, "", 0),)


#: By what is wrong: the places in the product, and what is there meanwhile.
PLANTED = {
    "a check and a put in place of a put if absent": {(Objects, "create"): create_after_a_check},
    "a lost answer is taken for a refusal": {(PublishLog, "_create"): take_each_refusal_for_anothers},
    "a term is not looked at": {(ObjectGroups, "_fence"): lambda _: lambda _: True},
    "one that does not hear of the store coordinates": {
        (ObjectServers, "coordinates"): property(lambda self: self.term is not None)
    },
    "sequence numbers are not folded": {(State, "_number"): lambda *_: None},
    "epochs of producers are not compared": {
        (transitions, "check_producer"): lambda *_: ErrorCode.NONE,
        (transitions, "_is_epoch_right"): lambda *_, **__: True,
    },
    "a staged offset is not applied": {(State, "_publish"): apply_no_offsets},
    "it is answered before it is decided": {(PublishLog, "decide"): answer_before_it_is_decided},
    "a dead server is judged by the time of day": {(ObjectServers, "_judge"): judge_by_the_time_of_day},
    "parts of a transaction are shown before its commit": {(State, "_take_in_servers"): show_at_once},
    "one that has slept does not look for a floor": {(PublishLog, "_floor_after"): lambda *_: None},
    "generations of groups are not compared": {(Coordinator, "check_commit"): lambda *_, **__: ErrorCode.NONE},
}  # fmt: skip
