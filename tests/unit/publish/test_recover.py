"""What was decided and not applied: shown, finished, or set aside; by the engine and by `pylog recover`."""

import contextlib
import json
import os
import socket
import time
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main
from pyspark_log.errors import (
    InvalidConfigError,
    LogDamagedError,
    PartlySetAsideError,
    PublishNumberError,
    PublishPendingError,
    SetAsideError,
    StagedOutputError,
)
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish import applier
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.recovery import recover, set_aside, waiting
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.stops import StopBefore, run_until
from tests.store_tools import publish, visible_values

A0 = TopicPartition("a", 0)


@pytest.fixture
def store(tmp_path, monkeypatch):
    # So that all that is staged is in files.
    monkeypatch.setattr("pyspark_log.storage.publish.staging.staged_writer.INLINE_LIMIT", 0)
    store = Store.create(tmp_path / "store", {"offsets.topic.num.partitions": "1"})
    store.create_topic("a", 1)
    store.create_topic("b", 1)
    return store


def stage(store, value, *topics):
    """One file for all topics."""
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, topics))
    for topic in topics:
        writer.append(topic, pa.record_batch({"value": [value]}))
    return writer.finish()


def content(store, topic):
    return [v for batch in Store.open(store.path).read(topic, 0) for v in batch["value"].to_pylist()]


def decide(store, publisher, number, parts, only=(), participants=()):
    """Publishes, and has it applied in the topics `only`."""
    real = applier.apply

    def apply(writer, *arguments, **options):
        if writer.place.topic not in only:
            raise OSError(28, "No space left on device")
        return real(writer, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applier, "apply", apply)
        with pytest.raises(PublishPendingError):
            publish(store.decisions, publisher, number, parts, participants=participants)
    return Store.open(store.path)


def lose_manifest(store):
    (manifest,) = Path(store.path, "staging").glob("*.manifest")
    manifest.unlink()


def pylog(store, *arguments):
    return CliRunner().invoke(main, ["--store", store.path, "recover", *arguments])


def notes(store):
    report = verify(store.path)
    assert not report.damaged, report.findings
    return [finding.what for finding in report.findings if finding.severity is Severity.NOTE]


def test_recover_finishes_what_was_decided_and_says_what_it_did(store):
    publish(store.decisions, "done", 0, stage(store, b"0", "a"))
    other = decide(store, "q", 7, stage(store, b"1", "a", "b"), only=["b"])
    (found,) = waiting(other.decisions)
    assert (found.decision.publisher, [place.topic for place in found.places], found.problem) == ("q", ["a"], "")
    assert 0 < found.size < 200
    dry = pylog(store, "--dry-run")
    assert dry.exit_code == 0
    assert dry.stdout.splitlines()[1].split()[1:3] == ["q", "7"]
    assert f"{socket.gethostname()}:{os.getpid()}" in dry.stdout
    assert dry.stdout.rstrip().endswith("a-0 (1 of 2)  waits")
    assert visible_values(store, topic="a") == [b"0"]
    result = pylog(store)
    assert (result.exit_code, result.stdout.rstrip().split()[-1]) == (0, "applied")
    assert (content(store, "a"), content(store, "b")) == ([b"0", b"1"], [b"1"])
    assert os.listdir(f"{store.path}/staging") == []
    again = pylog(store)
    assert (again.exit_code, again.stdout) == (0, "all decisions are applied\n")
    assert json.loads(pylog(store, "--json").stdout) == []


def test_what_cannot_be_applied_holds_up_only_what_is_after_it(store):
    other = decide(store, "lost", 0, stage(store, b"0", "a"))
    lose_manifest(store)
    other = decide(other, "behind", 0, stage(store, b"1", "a", "b"))
    other = decide(other, "beside", 0, stage(store, b"2", "b"))
    with pytest.raises(StagedOutputError, match=r"publisher 'lost'.*is missing"):
        help_apply(other.decisions)
    assert (content(store, "a"), content(store, "b")) == ([], [b"1", b"2"])
    result = pylog(store, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [(one["publisher"], one["applied"]) for one in found] == [("lost", False), ("behind", False)]
    assert all("is missing" in one["problem"] for one in found)
    assert [one["staged_bytes"] is None for one in found] == [True, False]
    assert "not applied: " in pylog(store).stdout


def test_a_partition_that_is_locked_holds_up_only_what_is_for_it(store):
    other = decide(store, "locked", 0, stage(store, b"0", "a"))
    other = decide(other, "behind", 0, stage(store, b"1", "a", "b"))
    other = decide(other, "beside", 0, stage(store, b"2", "b"))
    with store.logs.writer("a", 0).hold():
        help_apply(other.decisions)
    assert (visible_values(store, topic="a"), content(store, "b")) == ([], [b"1", b"2"])


def test_a_damaged_partition_holds_up_only_what_is_for_it(store):
    store.append("a", pa.record_batch({"value": [b"before"]}))
    other = decide(store, "damaged", 0, stage(store, b"0", "a", "b"))
    other = decide(other, "beside", 0, stage(store, b"1", "b"))
    state = store.logs.writer("a", 0).place.state_path
    os.rename(state, f"{state}.lost")
    with pytest.raises(LogDamagedError, match="a-0"):
        help_apply(other.decisions)
    assert content(store, "b") == [b"0", b"1"]
    result = pylog(store, "--json")
    (found,) = json.loads(result.stdout)
    assert (result.exit_code, found["publisher"], found["applied"]) == (1, "damaged", False)
    assert found["lacked_by"] == [{"topic": "a", "partition": 0}]
    assert "its state file" in found["problem"]
    os.rename(f"{state}.lost", state)
    assert pylog(store).exit_code == 0
    assert content(store, "a") == [b"before", b"0"]


def test_a_decision_applied_nowhere_can_be_withdrawn(store):
    publish(store.decisions, "q", 0, stage(store, b"0", "a"))
    OffsetsLog(store).commit("g", {A0: 5})
    other = decide(
        store,
        "q",
        1,
        stage(store, b"1", "a", "b"),
        participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", A0, 5, 9)])],
    )
    assert other.committed_offsets.committed("g")[A0].offset == 9
    (found,) = waiting(other.decisions)
    result = pylog(store, "--set-aside", str(found.decision.offset), "--yes")
    assert result.exit_code == 0, result.output
    assert "partitions without it: a-0,b-0,__consumer_offsets-0" in result.stdout
    assert "may publish the same number again" in result.stdout
    kept = os.listdir(f"{store.path}/cut/decision-{found.decision.offset}")
    assert sorted(name.rsplit(".")[-1] for name in kept) == ["manifest", "staged"]
    assert (waiting(Store.open(store.path).decisions), last_number(other.decisions, "q")) == ([], 0)
    assert OffsetsLog(other).fetch("g")[A0].offset == 5
    assert any(f"was set aside (process {os.getpid()} on" in note for note in notes(store))
    # The publisher, run again.
    publish(
        store.decisions,
        "q",
        1,
        stage(store, b"1", "a", "b"),
        participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", A0, 5, 9)])],
    )
    assert (content(store, "a"), content(store, "b")) == ([b"0", b"1"], [b"1"])
    assert OffsetsLog(other).fetch("g")[A0].offset == 9
    with pytest.raises(PublishNumberError):
        publish(other.decisions, "q", 3, [])


def test_after_a_number_was_taken_back_no_other_is_taken(store):
    """The one before it is no replay: what it was published with is not known any more, or it never was."""
    for publisher, first in (("fresh", 5), ("zero", 0), ("older", 4)):
        if publisher == "older":
            publish(store.decisions, publisher, 3, stage(store, b"3", "b"), plan="three")
        other = decide(store, publisher, first, stage(store, b"x", "a"), only=[])
        (found,) = waiting(other.decisions)
        assert set_aside(other.decisions, found.decision.offset).is_revoked
        for number in (first - 1, first + 1):
            with pytest.raises(PublishNumberError, match=rf"{first} was expected, which was .* set aside \(process"):
                publish(store.decisions, publisher, number, [], plan="another")
        publish(store.decisions, publisher, first, stage(store, b"%d" % first, "a"))
        assert publish(store.decisions, publisher, first, []).replayed
        publish(store.decisions, publisher, first + 1, [])
    assert content(store, "a") == [b"5", b"0", b"4"]


def test_a_decision_that_some_have_is_given_up_for_the_others(store, caplog):
    parts = stage(store, b"1", "a", "b")
    other = decide(store, "q", 0, parts, only=["b"])
    (found,) = waiting(other.decisions)
    result = set_aside(other.decisions, found.decision.offset)
    assert ([place.topic for place in result.places], result.is_revoked) == (["a"], False)
    assert (content(store, "a"), content(store, "b"), last_number(store.decisions, "q")) == ([], [b"1"], 0)
    # The damage that `verify` sees otherwise, where something is done and not applied, this is not.
    assert any("is not in a-0" in note for note in notes(store))
    assert publish(store.decisions, "q", 0, stage(store, b"1", "a", "b")).replayed
    assert "what it had for a-0 does not appear" in caplog.text
    publish(store.decisions, "q", 1, stage(store, b"2", "a", "b"))
    assert (content(store, "a"), content(store, "b")) == ([b"2"], [b"1", b"2"])
    assert any("is not in a-0" in note for note in notes(store))
    assert recover(store.decisions) == []


def test_decisions_that_wait_for_another_continue_when_it_is_set_aside(store):
    other = decide(store, "lost", 0, stage(store, b"0", "a"))
    number = waiting(other.decisions)[0].decision.offset
    lose_manifest(store)
    other = decide(other, "behind", 0, stage(store, b"1", "a"))
    assert set_aside(other.decisions, number).is_revoked
    assert help_apply(store.decisions) == 1
    assert content(store, "a") == [b"1"]


def test_what_is_applied_cannot_be_set_aside(store):
    publish(store.decisions, "q", 0, stage(store, b"0", "a"))
    for number in (0, 17):
        with pytest.raises(InvalidConfigError, match=f"decision {number} is applied everywhere, or there is none"):
            set_aside(store.decisions, number)
    assert pylog(store, "--set-aside", "0", "--yes").exit_code == 1
    assert pylog(store, "--set-aside", "0", "--dry-run").exit_code == 2


@pytest.mark.parametrize("change", range(12))
def test_setting_aside_that_was_stopped_halfway_can_be_done_again(store, change):
    """Before the record nothing of it is lost, though no process applies it meanwhile; after it all is done."""
    other = decide(store, "q", 0, stage(store, b"0", "a", "b"))
    number = waiting(other.decisions)[0].decision.offset
    assert run_until(lambda: set_aside(other.decisions, number), StopBefore(change)), "it makes fewer changes"
    fresh = Store.open(store.path)
    # An error, if the record was made.
    with contextlib.suppress(InvalidConfigError):
        set_aside(fresh.decisions, number)
    publish(fresh.decisions, "q", 0, stage(fresh, b"1", "a", "b"))
    assert (content(store, "a"), content(store, "b")) == ([b"1"], [b"1"])


def test_a_decision_set_aside_is_not_applied_by_a_process_about_to_do_so(store):
    """It has looked the decision up, and comes to a partition only when it is set aside."""
    real = applier.apply

    def late(writer, decision, *arguments, **options):
        set_aside(Store.open(store.path).decisions, decision)
        return real(writer, decision, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applier, "apply", late)
        with pytest.raises(SetAsideError, match="number 0\\) could not be applied and was set aside"):
            publish(store.decisions, "q", 0, stage(store, b"0", "a"))
    assert (content(store, "a"), last_number(Store.open(store.path).decisions, "q")) == ([], None)


def test_what_was_decided_for_a_topic_is_not_applied_to_a_new_one_of_its_name(store):
    """The topic is deleted and recreated after its state is read and before its writer is created."""
    other = decide(store, "q", 0, stage(store, b"old", "a", "b"), only=["b"])
    topic_id, real = store.describe_topic("a").topic_id, applier._apply_in

    def late(*arguments):
        store.delete_topic("a")
        store.create_topic("a", 1)
        real(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applier, "_apply_in", late)
        help_apply(other.decisions)
    assert store.describe_topic("a").topic_id != topic_id
    assert (content(store, "a"), content(store, "b")) == ([], [b"old"])
    assert recover(store.decisions) == []


def test_a_publisher_learns_that_its_decision_was_set_aside_while_it_waited(store):
    def wait(decisions, decision, *arguments):
        other = Store.open(store.path)
        set_aside(other.decisions, decision.offset)
        applier.apply_decision(decisions, decision, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pyspark_log.storage.publish.publishing.apply_decision", wait)
        with pytest.raises(SetAsideError, match="number 0\\) could not be applied and was set aside"):
            publish(store.decisions, "q", 0, stage(store, b"0", "a"))


def test_a_publisher_learns_that_some_partitions_have_what_was_set_aside_in_others(store):
    real = applier.apply

    def only_the_first(writer, decision, *arguments, **options):
        if writer.place.topic == "b":
            while not visible_values(store, topic="a"):
                time.sleep(0.01)  # Its thread is at work on it.
            set_aside(Store.open(store.path).decisions, decision)
        return real(writer, decision, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applier, "apply", only_the_first)
        with pytest.raises(PartlySetAsideError, match=r"number 0\) could not be applied and was set aside.* for b-0"):
            publish(store.decisions, "q", 0, stage(store, b"0", "a", "b"))
    assert (content(store, "a"), content(store, "b"), last_number(store.decisions, "q")) == ([b"0"], [], 0)


def test_verify_says_how_much_is_staged_how_old_it_is_and_whose(store):
    stage(store, b"of nobody", "a")
    (name,) = os.listdir(f"{store.path}/staging")
    os.rename(f"{store.path}/staging/{name}", f"{store.path}/staging/elsewhere.7.00000000.{'0' * 24}.staged")
    (Path(store.path) / "staging" / ("f" * 32 + ".staged")).write_bytes(b"12345")
    for _ in range(2):
        stage(store, b"never published", "a")
        os.utime(f"{store.path}/staging/{max(os.listdir(f'{store.path}/staging'))}", (1_000_000_000, 1_000_000_000))
    decide(store, "q", 3, stage(store, b"1", "a"))
    told = notes(store)
    assert any("1 staged files of 5 bytes" in note and "whose they are is not known" in note for note in told)
    mine = next(note for note in told if f"process {os.getpid()} of this host, which runs" in note)
    assert mine.startswith("2 staged files of ")
    assert any("1 staged files" in note and "for process 7 on elsewhere" in note for note in told)
    waits = next(note for note in told if "not yet applied in a-0" in note)
    assert f"(publisher 'q', number 3): decided (process {os.getpid()} on {socket.gethostname()}, 20" in waits
    assert "bytes are staged for it" in waits


def test_a_decision_is_given_up_only_when_that_is_confirmed(store):
    result = pylog(store, "--set-aside", "0")
    assert result.exit_code == 2
    assert "Give up decision 0 for good" in result.stderr
    assert "There is no terminal to ask at: give --yes. Nothing was changed." in result.stderr
