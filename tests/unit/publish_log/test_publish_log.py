"""The publish log: entries, what they fold to, and decisions that several processes want to make at once."""

import contextlib
import copy
import math
import multiprocessing
import os
import random
import time
from dataclasses import replace

import pytest

from pyspark_log.errors import (
    CorruptRecordError,
    LogDamagedError,
    ObjectStoreError,
    OutcomeUnknownError,
    PublisherFencedError,
    StagedOutputError,
    StoreError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish.decision import Decision, Origin
from pyspark_log.storage.publish_log import checkpoint, floors, proposals
from pyspark_log.storage.publish_log import log as log_module
from pyspark_log.storage.publish_log.entries import sums
from pyspark_log.storage.publish_log.entries.changes import (
    Addition,
    Document,
    GroupRecord,
    LogStart,
    Merge,
    Numbered,
    OffsetMove,
    Place,
    Region,
    ServerNote,
    Staged,
    StagedOffset,
    Step,
    TransactionStep,
)
from pyspark_log.storage.publish_log.entries.entry import Entry, decode, encode, name_of
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.proposals import Output
from pyspark_log.storage.publish_log.serving import servers
from pyspark_log.storage.publish_log.state import NO_COORDINATOR, Coordinator, Piece, State
from pyspark_log.types import OffsetStep, TopicDescription, TopicPartition
from tests.object_proxy import Answer, pass_on, proxy
from tests.store_tools import observed_requests

ID, OTHER_ID = "A" * 22, "B" * 22
AT = TopicPartition("t", 0)
TOPIC = TopicDescription("t", ID, 2, {"retention.ms": "-1"})
ORIGIN = Origin("host", 7, 1000)


def _region(records, name="data/x", position=0, size=10):
    return Region(name, position, size, records, 99, 7)


def _output(records, partition=0, topic_id=ID):
    return Output("t", topic_id, partition, (_region(records),))


def _wanted(number, publisher="p", run="", **fields):
    return Decision(publisher, number, run=run, host=ORIGIN.host, process=ORIGIN.process, time=ORIGIN.time, **fields)


@pytest.fixture
def log(objects):
    return PublishLog(objects, lambda: 5000)


@pytest.fixture
def written(log):
    """A log with a topic."""
    log.decide(lambda state: proposals.create_topic(state, TOPIC))
    return log


def _publish(log, number, *, records=3, publisher="p", run="", steps=(), claimed=False, **fields):
    wanted = _wanted(number, publisher, run, **fields)
    return log.decide(lambda state: proposals.publish(state, wanted, [_output(records)], steps, claimed=claimed))


# ---- entries


ENTRY = Entry(
    3, "f" * 32, ORIGIN, (TOPIC,), (OTHER_ID,),
    replace(
        _wanted(5, run="b", location="l", plan="q"), offset=3, done=True, replaced=("a",), records=4, holder=ORIGIN
    ),
    (Addition(ID, 1, 17, (_region(4), _region(1, ""))),), (Numbered(ID, 1, 2**40, 3, 2**31 - 1, 17, 4),),
    (OffsetMove("g", AT, None, 4, "note"), OffsetMove("g", AT, 4, None)),
    (GroupRecord("g", b"\0\2key", b"\xff"), GroupRecord("g", b"gone", None)),
    (Staged(9, ID, 0, (_region(2),)),), (StagedOffset(9, "g", AT, 7, "note"),),
    (TransactionStep("tx", b"\0value", 3, 9, 4, Step.BEGIN), TransactionStep("ty", None, -1, -1, -1, Step.NONE)),
    ServerNote(1, "R" * 22, Place("host", 9092, "r1"), coordinates=True, leaves=False),
    (Document("users.json", "access/x", 7),), (LogStart(ID, 0, 2),),
    (Merge(ID, 1, 4, 9, (_region(5),), 3), Merge(ID, 0, 0, 1, (_region(1),))), 77, 2,
)  # fmt: skip


def test_an_entry_is_read_as_it_was_written():
    data = encode(ENTRY, [b"batches", memoryview(b"more")])
    found = decode(3, data)
    assert found == ENTRY
    assert data[found.head_size :] == b"batchesmore"
    assert decode(3, data[: found.head_size]) == ENTRY
    # An earlier version, which knows of no racks, has a server without one.
    older = replace(ENTRY, server=ENTRY.server._replace(place=Place("host", 9092)))
    data = encode(older, [])
    assert b'"server":[1,"' + b"R" * 22 + b'","host",9092,true,false]' in data
    assert decode(3, data) == older


def test_a_damaged_entry_is_refused():
    data = encode(ENTRY)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(CorruptRecordError):
            decode(3, bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError):
            decode(3, data[:size])
    with pytest.raises(CorruptRecordError, match="objects were copied or renamed"):
        decode(4, data)


# ---- the fold


def test_records_follow_each_other():
    state = State()
    state.apply(Entry(0, "", ORIGIN, (TOPIC,)))
    state.apply(Entry(1, "", ORIGIN, additions=(Addition(ID, 0, 0, (_region(3), _region(2, "", 8))),), head_size=100))
    state.apply(Entry(2, "", ORIGIN, additions=(Addition(ID, 0, 5, (_region(1),)),)))
    log = state.partitions[ID, 0]
    assert log.pieces == [
        Piece(0, 3, "data/x", 0, 10, 99, 7), Piece(3, 5, name_of(1), 108, 10, 99, 7),
        Piece(5, 6, "data/x", 0, 10, 99, 7),
    ]  # fmt: skip
    assert (log.log_end, state.log_end(ID, 1)) == (6, 0)
    assert [piece.base_offset for piece in log.between(3, 6)] == [3, 5]
    assert [piece.base_offset for piece in log.between(2, 3)] == [0]
    assert log.between(6, 6) == []


@pytest.mark.parametrize(
    "entry",
    [
        Entry(5, "", ORIGIN),
        Entry(2, "", ORIGIN, additions=(Addition(ID, 0, 2, (_region(1),)),)),
        Entry(2, "", ORIGIN, additions=(Addition(ID, 0, 3, (_region(1),)), Addition(ID, 0, 3, (_region(1),)))),
    ],
)
def test_an_entry_that_does_not_follow_is_refused(entry):
    state = State()
    state.apply(Entry(0, "", ORIGIN, (TOPIC,)))
    state.apply(Entry(1, "", ORIGIN, additions=(Addition(ID, 0, 0, (_region(3),)),)))
    with pytest.raises(LogDamagedError):
        state.apply(entry)
    assert (state.number, state.log_end(ID, 0)) == (1, 3)


# ---- decisions


def test_a_later_run_fences_those_before_it(written, objects):
    zombie = PublishLog(objects, lambda: 5000)
    for log, run in ((zombie, "first"), (written, "second")):
        log.decide(lambda state, run=run: proposals.claim(state, _wanted(0, run=run)))
    # It has not heard of the second one yet.
    assert zombie._state.publishers["p"].run == "first"
    with pytest.raises(PublisherFencedError, match="run first was replaced by run second"):
        _publish(zombie, 0, run="first", claimed=True)
    _publish(written, 0, run="second", claimed=True)
    assert written.decide(lambda state: proposals.claim(state, _wanted(0, run="second"))) is None
    with pytest.raises(PublisherFencedError):
        zombie.decide(lambda state: proposals.claim(state, _wanted(0, run="first"), 1))
    elsewhere = _wanted(0, run="third", location="elsewhere")
    with pytest.raises(PublisherFencedError, match="is no longer known"):
        _publish(written, 0, publisher="unknown", run="x", claimed=True)
    _publish(written, 1, run="second", claimed=True, location="here")
    with pytest.raises(PublisherFencedError, match="belongs to the checkpoint here"):
        written.decide(lambda state: proposals.claim(state, elsewhere, 2))
    written.decide(lambda state: proposals.claim(state, elsewhere, take_over=True))
    _publish(written, 40, run="third", claimed=True, location="elsewhere")
    with pytest.raises(PublisherFencedError):
        _publish(written, 2, run="second", claimed=True, location="here")


def test_topics(written):
    with pytest.raises(TopicExistsError):
        written.decide(lambda state: proposals.create_topic(state, replace(TOPIC, topic_id=OTHER_ID)))
    written.decide(lambda state: proposals.add_partitions(state, "t", 5))
    written.decide(lambda state: proposals.alter_configs(state, "t", {"segment.bytes": "1000"}, ["retention.ms"]))
    assert written.decide(lambda state: proposals.alter_configs(state, "t", {"segment.bytes": "1000"})) is None
    assert written.follow().topics == {"t": TopicDescription("t", ID, 5, {"segment.bytes": "1000"})}
    written.decide(lambda state: proposals.append(state, [_output(5)]))
    written.decide(lambda state: proposals.delete_records(state, "t", 0, 2))
    assert written.decide(lambda state: proposals.delete_records(state, "t", 0, 1)) is None
    assert written.follow().partitions[ID, 0].log_start == 2
    written.decide(lambda state: proposals.delete_topic(state, "t"))
    assert (written.follow().topics, written.follow().partitions) == ({}, {})
    with pytest.raises(UnknownTopicError):
        written.decide(lambda state: proposals.append(state, [_output(1)]))
    with pytest.raises(StagedOutputError):
        _publish(written, 0)
    written.decide(lambda state: proposals.create_topic(state, replace(TOPIC, topic_id=OTHER_ID)))
    with pytest.raises(StagedOutputError):
        _publish(written, 0)


def test_a_refusal_by_an_old_state_is_looked_at_again(written, objects):
    other = PublishLog(objects, lambda: 5000)
    other.follow()
    _publish(written, 0)
    # Number 1 is none that may follow in what the other one knows; nor is the topic there.
    assert _publish(other, 1).additions[0].base_offset == 3
    written.decide(lambda state: proposals.create_topic(state, TopicDescription("u", OTHER_ID, 1)))
    assert other.decide(lambda state: proposals.delete_topic(state, "u")) is not None


def test_what_servers_have_not_written_is_for_older_versions_too():
    new = dict.fromkeys(("numbered", "group_records", "staged", "staged_offsets", "steps"), ()) | {"server": None}
    assert b'"version":3,' in encode(replace(ENTRY, **new))
    entry = replace(ENTRY, documents=())
    assert b'"version":1,' in encode(replace(entry, **new))
    for name in new:
        assert b'"version":2,' in encode(replace(entry, **{**new, name: getattr(entry, name)}))
    state, new = _state_of_everything(), {}
    assert checkpoint._fields(state)["version"] == 3
    state = replace(state, documents={})
    for name in ("producers", "members", "servers", "transactional", "open"):
        new[name] = {}
    assert checkpoint._fields(replace(state, **new))["version"] == 1
    for name in new:
        assert getattr(state, name)
        assert checkpoint._fields(replace(state, **{**new, name: getattr(state, name)}))["version"] == 2


def test_producers_are_forgotten_by_time_and_number():
    state, day = State(), 24 * 60 * 60 * 1000
    state.apply(Entry(0, "", ORIGIN, (TOPIC,)))

    def apply(number, time, producer_id=None):
        end = state.log_end(ID, 0)
        entry = Entry(number, "", ORIGIN._replace(time=time))
        if producer_id is not None:
            added, batch = Addition(ID, 0, end, (_region(1),)), Numbered(ID, 0, producer_id, 0, 0, end, 1)
            entry = replace(entry, additions=(added,), numbered=(batch,))
        state.apply(entry)

    def known():
        return set(state.producers.get((ID, 0), ()))

    apply(1, 1000, 1)
    # A clock that is far ahead forgets none that has just written.
    for number in range(2, 300):
        apply(number, 9 * day, 2 if number == 2 else None)
    assert known() == {1, 2}
    # As many decisions later both were idle for long enough, but the time of the second one is that of its clock.
    for number in range(300, 5000):
        apply(number, 2 * day, 3 if number == 4700 else None)
    assert known() == {2, 3}
    for number in range(5000, 10000):
        apply(number, 11 * day)
    assert not state.producers


def test_servers_and_their_coordinator():
    state = State()

    def decide(proposal, time=1000):
        if proposal is not None:
            state.apply(Entry(state.number + 1, "", ORIGIN._replace(time=time), server=proposal.server))

    first, second, place = "1" * 22, "2" * 22, Place("host", 9092)
    decide(servers.register(state, None, first, place))
    decide(servers.register(state, None, second, place))
    assert ({node_id: one.run for node_id, one in state.servers.items()}, state.coordinator) == (
        {1: first, 2: second}, Coordinator(first, 0)
    )  # fmt: skip
    decide(servers.renew(state, 2, second, place))
    assert (state.servers[2].number, state.coordinator.run) == (2, first)
    # The first of several that take its place does.
    decide(servers.coordinate(state, 2, second, place, dead=first))
    assert state.coordinator == Coordinator(second, 3)
    assert servers.coordinate(state, 1, first, place, dead=first) is None
    # Another start with its id takes what it had; the earlier one finds out.
    decide(servers.register(state, 2, "3" * 22, place))
    assert state.coordinator == Coordinator("3" * 22, 4)
    with pytest.raises(StoreError, match="has node id 2 now, at host:9092"):
        servers.renew(state, 2, second, place)
    assert servers.leave(state, 2, second) is None
    decide(servers.leave(state, 2, "3" * 22))
    assert (set(state.servers), state.coordinator) == ({1}, NO_COORDINATOR)
    decide(servers.renew(state, 1, first, place))
    assert state.coordinator.run == first
    state.servers[9] = state.servers[1]._replace(time=9 * 24 * 60 * 60 * 1000)
    for number in range(state.number + 1, 5120):
        state.apply(Entry(number, "", ORIGIN._replace(time=5 * 24 * 60 * 60 * 1000)))
    assert set(state.servers) == {9}


def test_a_large_head(written):
    topics = tuple(TopicDescription(f"topic-{n:04}", f"{n:022}", 1, {"a": "x" * 100}) for n in range(1000))
    written.decide(lambda _: proposals.Proposal(topics=topics))
    other = PublishLog(written.objects, lambda: 0)
    assert len(other.follow().topics) == 1001


def _state_of_everything():
    state = State()
    begins = TransactionStep("tx", b"", -1, 9, 4, Step.BEGIN)
    state.apply(Entry(0, "", ORIGIN, (TOPIC, TopicDescription("u", OTHER_ID, 1)), steps=(begins,)))
    entry = replace(ENTRY, number=1, additions=(Addition(ID, 1, 0, (_region(4), _region(1, ""))),), deleted=())
    numbered = Numbered(ID, 1, 8, 3, 2**31 - 1, 0, 4), Numbered(ID, 1, 8, 3, 3, 4, 1)
    state.apply(replace(entry, numbered=numbered, merges=(), steps=()))
    state.apply(Entry(2, "", ORIGIN, moves=(OffsetMove("g", AT, None, 4, "x"), OffsetMove("h", AT, None, 9))))
    return state


def test_a_checkpoint_is_the_state():
    state = _state_of_everything()
    assert checkpoint.decode(2, checkpoint.encode(state)) == state
    data = checkpoint.encode(state)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptRecordError):
            checkpoint.decode(2, bytes(damaged))
    with pytest.raises(CorruptRecordError):
        checkpoint.decode(3, data)


def test_a_new_process_reads_the_checkpoint_and_what_came_after_it(written, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 64)
    for number in range(99):
        _publish(written, number)
    with requests() as seen:
        late = PublishLog(written.objects, lambda: 0).follow()
    assert late == written.follow()
    # The first entry, the rest of its block and the next one by their sums; the last ones, some at the same time.
    assert [key for _, key in seen[:5]] == [
        "checkpoint/last", checkpoint.name_of(63), name_of(64), sums.name_of(65), sums.name_of(80)
    ]  # fmt: skip
    assert sorted(seen[5:]) == [
        ("get", floors.name_of(1)), *[("get", name_of(n)) for n in range(96, 104)], ("get", sums.name_of(96))
    ]  # fmt: skip


@contextlib.contextmanager
def requests():
    """The requests that are made in the block: their kinds and names."""
    seen = []
    with observed_requests(lambda request: None if request.is_done else seen.append((request.kind, request.key))):
        yield seen


@pytest.mark.parametrize(("decisions", "most"), [(1, 2), (8, 9), (12, 18), (20, 24), (50, 30), (200, 40)])
def test_how_many_requests_it_takes_to_follow(written, decisions, most):
    late = PublishLog(written.objects, lambda: 0)
    late.follow()
    for number in range(decisions):
        _publish(written, number)
    with requests() as seen:
        state = late.follow()
    assert state == written.follow()
    assert len(seen) <= most
    assert {kind for kind, _ in seen} == {"get"}


def test_a_sum_that_is_damaged_or_missing_is_not_needed(written, caplog):
    for number in range(60):
        _publish(written, number)
    written.objects.put(sums.name_of(16), b"something else")
    written.objects.delete([sums.name_of(32)])
    assert PublishLog(written.objects, lambda: 0).follow() == written.follow()
    assert f"{sums.name_of(16)}: at byte 0 (base offset -1): it does not begin" in caplog.text


@pytest.mark.parametrize("hint", [b"", b"x", b"15", b"99999999999999999999"])
def test_a_hint_that_is_wrong_costs_time_alone(written, hint):
    _publish(written, 0)
    written.objects.put("checkpoint/last", hint)
    assert PublishLog(written.objects, lambda: 0).follow() == written.follow()


# ---- states that were given out


def test_a_state_that_was_given_out_never_changes(written, objects):
    _publish(written, 0, steps=[OffsetStep("g", AT, None, 10)])
    state = written.follow()
    kept = copy.deepcopy(state)
    log = state.partitions[ID, 0]
    for number in range(1, 4):
        _publish(PublishLog(objects, lambda: 5000), number, steps=[OffsetStep("g", AT, 9 + number, 10 + number)])
    written.decide(lambda now: proposals.delete_records(now, "t", 0, 4))
    written.decide(lambda now: proposals.commit(now, "h", {AT: 1}))
    assert (state, state.partitions[ID, 0]) == (kept, log)
    after = written.follow()
    assert (after.log_end(ID, 0), after.partitions[ID, 0].log_start, after.groups["g"][AT].offset) == (12, 4, 13)
    for group in ("g", "h"):
        written.decide(lambda now, group=group: proposals.commit(now, group, {AT: None}))
    written.decide(lambda now: proposals.delete_topic(now, "t"))
    assert (after.topics, after.groups.keys()) == ({"t": TOPIC}, {"g", "h"})
    assert (written.follow().topics, written.follow().groups, written.follow().partitions) == ({}, {}, {})
    assert state == kept


def test_a_block_looks_once(written, objects):
    seen = []
    other = PublishLog(objects, lambda: 5000)
    with observed_requests(lambda request: None if request.is_done else seen.append(request.kind)):
        with other.looking():
            before = len(seen)
            _publish(written, 0)
            seen.clear()
            assert other.follow().log_end(ID, 0) == 0
            # What it decides itself it sees; and with it all that was decided before.
            other.decide(lambda now: proposals.append(now, [_output(2)]))
            assert other.follow().log_end(ID, 0) == 5
        assert before > 0
        assert seen.count("get") <= 3
        _publish(written, 1)
        assert other.follow(math.inf).log_end(ID, 0) == 5
        assert other.follow(1000).log_end(ID, 0) == 8  # The last time that it looked it has found something.
        seen.clear()
        _publish(written, 2)
        assert [other.follow(1000).log_end(ID, 0) for _ in range(5)] == [11] * 5
        # It looks once more, as it has found something.
        assert seen == ["create", "get", "get", "get"]
        assert other.follow(math.inf) is other.follow(1000)


# ---- what object stores do


def _lost_answers(exchange, lost):
    answer = pass_on(exchange)
    if exchange.is_create and exchange.path not in lost:
        lost.add(exchange.path)
        return None
    return answer


def test_a_decision_whose_answer_was_lost_is_its_own(server, url, written):
    lost = set()
    with proxy(server, lambda exchange: _lost_answers(exchange, lost)) as unsure:
        log = PublishLog(Objects(url, unsure.options), lambda: 5000)
        for number in range(5):
            assert _publish(log, number) is not None
    assert len(lost) == 5
    assert written.follow().log_end(ID, 0) == 15


def test_a_number_that_collided_is_tried_again(server, url, written, monkeypatch):
    """S3 answers 409 while another write of that name is going on; then none of them may have succeeded."""
    monkeypatch.setattr(log_module, "_PAUSE", 0)
    refused = []

    def collide(exchange):
        if exchange.is_create and len(refused) < 2:
            refused.append(exchange.path)
            return Answer(412, body=b"<Error><Code>PreconditionFailed</Code></Error>")
        return pass_on(exchange)

    with proxy(server, collide) as unsure:
        log = PublishLog(Objects(url, unsure.options), lambda: 5000)
        assert _publish(log, 0).additions[0].base_offset == 0
    assert len(refused) == 2
    assert written.follow().log_end(ID, 0) == 3


def test_what_can_be_neither_created_nor_read_is_said(server, url, written, monkeypatch):
    """versitygw answers so after a kill that left the attributes of an object without the object."""
    monkeypatch.setattr(log_module, "_PAUSE", 0)

    def refuse(exchange):
        return Answer(412) if exchange.is_create else pass_on(exchange)

    with proxy(server, refuse) as unsure:
        log = PublishLog(Objects(url, unsure.options), lambda: 5000)
        with pytest.raises(OutcomeUnknownError, match=r"log/0+1: .*refuses to create it, .* does not find it"):
            _publish(log, 0)
    assert written.follow().number == 0


def test_what_is_not_allowed_is_certainly_not_decided(server, url, written):
    def refuse(exchange):
        return Answer(403) if exchange.is_create else pass_on(exchange)

    with proxy(server, refuse) as refusing:
        log = PublishLog(Objects(url, refusing.options), lambda: 5000)
        with pytest.raises(ObjectStoreError, match="create is not allowed"):
            _publish(log, 0)
    assert written.follow().number == 0


def test_a_decision_whose_answer_was_lost_before_it_was_forbidden_is_its_own(server, url, written):
    """The library tries again by itself: the last answer is not what became of the first try."""
    tries = []

    def forbid(exchange):
        if exchange.is_create:
            tries.append(exchange.path)
            return _lost_answers(exchange, set()) if len(tries) == 1 else Answer(403)
        return pass_on(exchange)

    with proxy(server, forbid) as forbidding:
        log = PublishLog(Objects(url, forbidding.options), lambda: 5000)
        assert _publish(log, 0) is not None
    assert len(tries) == 2
    assert written.follow().log_end(ID, 0) == 3


# ---- several processes


def _publisher(url, options, name, until, seed):
    """Publishes numbers up to `until`, from where it was: what a driver does that is started again."""
    chance = random.Random(seed)
    log = PublishLog(Objects(url, options), lambda: 5000)
    run = f"{name} {os.getpid()}"
    log.decide(lambda state: proposals.claim(state, _wanted(0, name, run)))
    number = max(log.follow().publishers[name].number, 0)
    while number < until:
        count = 1 + number % 4
        output = Output("t", ID, number % 2, (_region(count, f"data/{name}-{number}"),))
        group = TopicPartition("t", number % 2)
        committed = log.follow().groups.get(name, {}).get(group)
        step = OffsetStep(name, group, None if committed is None else committed.offset, number + 1)
        steps = [] if committed is not None and committed.offset == number + 1 else [step]
        wanted = _wanted(number, name, run)
        log.decide(lambda state, w=wanted, o=output, s=steps: proposals.publish(state, w, [o], s, claimed=True))
        number += 1
        if chance.random() < 0.1:
            time.sleep(chance.random() / 100)


def _check(objects, names, until):
    state = PublishLog(objects, lambda: 0).follow()
    for partition in range(2):
        log = state.partitions[ID, partition]
        assert [piece.base_offset for piece in log.pieces] == [0, *[piece.next_offset for piece in log.pieces[:-1]]]
        for name in names:
            mine = [piece.object for piece in log.pieces if piece.object.startswith(f"data/{name}-")]
            assert mine == [f"data/{name}-{number}" for number in range(until) if number % 2 == partition]
    assert {name: state.publishers[name].number for name in names} == dict.fromkeys(names, until - 1)


@pytest.mark.slow
def test_publishers_at_once_with_kills(server, url, objects, written):
    """Each output is there once and in order, whichever process is killed and whenever."""
    context, chance, until = multiprocessing.get_context("spawn"), random.Random(30), 40
    names = ["a", "b", "c"]

    def start(name):
        process = context.Process(target=_publisher, args=(url, server.options, name, until, chance.random()))
        process.start()
        return process

    running = {name: start(name) for name in names}
    for _ in range(4):
        before = written.follow().number
        # Killed while it works, and not before it has begun.
        while written.follow().number < before + chance.randrange(10, 25) and any(
            p.is_alive() for p in running.values()
        ):
            time.sleep(0.01)
        # A publisher may have finished: to kill it does nothing, and its successor finds nothing to do.
        victim = chance.choice(names)
        running[victim].kill()
        running[victim].join()
        running[victim] = start(victim)
    for process in running.values():
        process.join()
        assert process.exitcode == 0
    _check(objects, names, until)
