"""`pylog groups` on a real store: what it prints is laid out as kafka-consumer-groups.sh lays it out."""

from __future__ import annotations

import json
import os
import socket

import pytest
from cli_tools import T0, output, pylog, records
from group_tools import append, members

from pyspark_log.monitoring.snapshot import take_snapshot
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.groups.log import records as coordinator_records
from pyspark_log.storage.groups.log.records import NEVER
from pyspark_log.storage.groups.members.query_readers import text_of_this_process
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.store import Store
from pyspark_log.storage.transactions import TransactionLog
from pyspark_log.types import TopicPartition

EVENTS = [TopicPartition("events", number) for number in range(3)]
GONE = TopicPartition("gone", 0)


@pytest.fixture
def store(path):
    return filled(path)


@pytest.fixture
def log(store):
    return with_positions(store)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """The path of such a store that all tests use which change nothing."""
    path = tmp_path_factory.mktemp("groups") / "store"
    with_positions(filled(path))
    return path


def filled(path) -> Store:
    """Offsets 4 to 10 in partition 0, a second apart from T0 on; 0 to 5 in partition 1; nothing in partition 2."""
    store = Store.create(path, {"offsets.topic.num.partitions": "3"})
    store.create_topic("events", 3, {"retention.ms": "-1"})
    store.append("events", records(["k"] * 10, [b"v"] * 10), partition=0)
    store.append("events", records(["k"] * 5, [b"v"] * 5, first=T0 + 60_000), partition=1)
    store.delete_records("events", 0, 4)
    return store


def with_positions(store: Store) -> OffsetsLog:
    log = OffsetsLog(store)
    log.commit("g", {EVENTS[0]: 7, EVENTS[1]: 2, GONE: 9})
    return log


def committed(log: OffsetsLog, group: str = "g") -> dict[TopicPartition, int]:
    return {at: kept.offset for at, kept in log.fetch(group).items()}


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def plan(path, *arguments: str) -> tuple[dict[int, int], str]:
    """What a reset of group g would do to topic events: offset by partition; and what it warns of."""
    result = pylog(path, "groups", "reset-offsets", "--group", "g", "--dry-run", *arguments)
    assert result.exit_code == 0, result.stderr
    head, *rows = cells(result.stdout)
    assert head == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert {(group, topic) for group, topic, _, _ in rows} <= {("g", "events")}
    return {int(partition): int(offset) for _, _, partition, offset in rows}, result.stderr


# --- listing


def test_groups_are_listed_with_their_state(log, store, path):
    log.commit("busy", {EVENTS[0]: 4})
    append(store, "busy", coordinator_records.encode_group_key("busy"), members("events"))
    assert output(path, "groups", "list") == "busy\ng\n"
    assert json.loads(output(path, "groups", "list", "--json")) == ["busy", "g"]
    busy = ["busy", "Stable", "consumer"]
    assert cells(output(path, "groups", "list", "--state")) == [
        ["GROUP", "STATE", "PROTOCOL-TYPE"],
        busy,
        ["g", "Empty", "-"],
    ]
    assert cells(output(path, "groups", "list", "--state", "stable,DEAD"))[1:] == [busy]
    assert json.loads(output(path, "groups", "list", "--state=Empty", "--json")) == [
        {"group": "g", "state": "Empty", "protocol_type": None}
    ]
    assert pylog(path, "groups", "list", "--state", "Lost").exit_code == 2
    # A query, whose process this is.
    store.groups["query"].commit({EVENTS[0]: 4}, text_of_this_process("copy-orders"))
    assert cells(output(path, "groups", "list", "--state", "query"))[1:] == [["query", "Query", "-"]]
    row = cells(output(path, "groups", "describe", "query", "--state"))[1]
    assert row[2:8] == ["Query", "0", "-", socket.gethostname(), str(os.getpid()), "copy-orders"]


def test_a_group_is_described_with_its_lag(unchanged):
    assert output(unchanged, "groups", "describe", "g").splitlines() == [
        "GROUP  TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID",
        "g      events          0               7              10    3            -     -          -",
        "g      events          1               2               5    3            -     -          -",
        "g      gone            0               9               -    -            -     -          -",
    ]
    rows = json.loads(output(unchanged, "groups", "describe", "g", "--json"))
    assert [(row["current_offset"], row["lag"], row["expire_timestamp"]) for row in rows] == [
        (7, 3, None),
        (2, 3, None),
        (9, None, None),
    ]
    assert cells(output(unchanged, "groups", "describe", "--group", "g", "--state"))[1][:-1] == [
        "g", "-", "Empty", "0", "-", "-", "-", "-",
    ]  # fmt: skip
    assert len(cells(output(unchanged, "groups", "describe", "--all-groups", "--members"))) == 1
    some = pylog(unchanged, "groups", "describe", "nobody", "g", "--json")
    assert (some.exit_code, json.loads(some.stdout)) == (1, rows)
    assert some.stderr.splitlines()[0] == "Error: 1 of 2 groups failed:"


def test_a_group_that_starts_over_has_no_lag(store, path):
    """A client has committed -2, as kafkajs does where retention has overtaken it."""
    with_positions(store)
    log = store.groups.log
    log.commit_in_transaction("g", {EVENTS[0]: OffsetAndMetadata(-2, -1, "", 1)}, 7, 0)
    marker = EndTxnMarker(True, 0)
    TransactionLog(store.logs).end(log.membership.partition_of("g"), 7, 0, marker, sync=False)
    assert cells(output(path, "groups", "describe", "g"))[1][3:6] == ["-2", "10", "-"]
    [row] = json.loads(output(path, "groups", "describe", "g", "--json"))[:1]
    assert (row["current_offset"], row["lag"]) == (-2, None)
    [known] = [left for _, at, offset, left in take_snapshot(store).positions() if at == EVENTS[0]]
    assert known is None
    assert log.delete_offsets("g", [EVENTS[0]]) == [EVENTS[0]]


def test_members_are_shown_with_what_they_have(log, store, path):
    value = members("events")[:-4] + b"\0\0\0\x1a\0\0\0\0\0\1\0\6events\0\0\0\2\0\0\0\1\0\0\0\2"
    append(store, "g", coordinator_records.encode_group_key("g"), value)
    member = ["c-1", "/127.0.0.1", "c"]
    assert cells(output(path, "groups", "describe", "g", "--members"))[1:] == [["g", *member, "2"]]
    row = cells(output(path, "groups", "describe", "g", "--state"))[1]
    assert row[:5] == ["g", "range", "Stable", "1", "consumer"]
    assert cells(output(path, "groups", "describe", "g"))[1:4] == [
        ["g", "events", "0", "7", "10", "3", "-", "-", "-"],
        ["g", "events", "1", "2", "5", "3", *member],
        ["g", "events", "2", "-", "0", "-", *member],
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("describe", "nobody"), 1, "[PYLOG_GROUP_ID_NOT_FOUND] there is no group 'nobody' in "),
        (("describe",), 2, "Which group? Name one, or give --all-groups"),
        (("describe", "g", "--all-groups"), 2, "Which group? Name one, or give --all-groups"),
        (("describe", "g", "--state", "--members"), 2, "Give only one of --offsets, --members and --state"),
        (("delete", "nobody", "--yes"), 1, "PYLOG_GROUP_ID_NOT_FOUND"),
        (("delete-offsets", "--group", "g"), 2, "Which partitions? Give --topic"),
        (("delete-offsets", "--group", "g", "--topic", "events:x"), 2, "expected partition numbers after the colon"),
        (("delete-offsets", "--group", "g", "--topic", "events:1,3"), 1, "has the partitions 0 to 2, not 3"),
        (("delete-offsets", "--group", "g", "--topic", "gone:0,1"), 1, "there is no topic 'gone'"),
        (("delete-offsets", "--group", "nobody", "--topic", "events", "--yes"), 1, "PYLOG_GROUP_ID_NOT_FOUND"),
    ],
)
def test_what_is_not_understood_is_refused(unchanged, arguments, code, text):
    result = pylog(unchanged, "groups", *arguments)
    assert (result.exit_code, text in result.stderr) == (code, True), result.stderr


# --- taking back


def test_a_group_without_members_can_be_deleted(log, store, path):
    for group in "hi":
        log.commit(group, {EVENTS[0]: 4})
    append(store, "h", coordinator_records.encode_group_key("h"), members("events"))
    refused = pylog(path, "groups", "delete", "g", "h", "nobody", "i", "--yes")
    assert refused.exit_code == 1
    assert [line.split("] ")[0] for line in refused.stderr.splitlines()] == [
        "Error: 2 of 4 groups failed:",
        "  h: [PYLOG_NON_EMPTY_GROUP",
        "  nobody: [PYLOG_GROUP_ID_NOT_FOUND",
    ]
    assert refused.stdout == "Deleted group g.\nDeleted group i.\n"
    assert log.groups() == ["h"]
    append(store, "h", coordinator_records.encode_group_key("h"), members())
    output(path, "groups", "delete", "--all-groups", "--yes")
    assert log.groups() == []


def test_single_positions_can_be_deleted(log, path):
    which = ("--group", "g", "--topic", "events:1,2", "--topic", "gone")
    deleted = output(path, "groups", "delete-offsets", *which, "--yes")
    assert [line.split(maxsplit=2) for line in deleted.splitlines()] == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["events", "1", "deleted"],
        ["events", "2", "nothing was committed"],
        ["gone", "0", "deleted"],
    ]
    assert committed(log) == {EVENTS[0]: 7}


# --- resets


@pytest.mark.parametrize(
    ("scenario", "offsets", "warnings"),
    [
        (["--to-earliest"], {0: 4, 1: 0, 2: 0}, []),
        (["--to-latest"], {0: 10, 1: 5, 2: 0}, []),
        (["--to-current"], {0: 7, 1: 2, 2: 0}, []),
        (["--to-offset", "4"], {0: 4, 1: 4, 2: 0}, ["events-2: 4 is above the latest offset; 0 is used"]),
        (["--to-offset", "2"], {0: 4, 1: 2, 2: 0}, ["events-0: 2 is below the", "events-2: 2 is above the"]),
        (["--to-datetime", "2023-11-14T22:13:26.500"], {0: 7, 1: 0, 2: 0}, ["events-2 has no record at or after that"]),
        (["--to-datetime", "2023-11-14T23:14:22.000+01:00"], {0: 10, 1: 2, 2: 0}, ["events-0 has no", "events-2 has"]),
        (["--by-duration", "P36500D"], {0: 4, 1: 0, 2: 0}, ["events-2 has no record at or after that time"]),
        (["--by-duration", "pt0.5s"], {0: 10, 1: 5, 2: 0}, ["events-0", "events-1", "events-2"]),
    ],
)
def test_every_scenario_finds_its_offsets(unchanged, scenario, offsets, warnings):
    before = committed(OffsetsLog(Store.open(unchanged)))
    found, errors = plan(unchanged, "--topic", "events", *scenario)
    assert found == offsets
    lines = errors.splitlines()
    assert len(lines) == len(warnings), errors
    assert all(f"Warning: {warning}" in line for warning, line in zip(warnings, lines, strict=True)), errors
    assert committed(OffsetsLog(Store.open(unchanged))) == before


@pytest.mark.parametrize(("shift", "offsets"), [(1, {0: 8, 1: 3}), (-3, {0: 4, 1: 0}), (100, {0: 10, 1: 5})])
def test_positions_are_shifted_within_their_logs(unchanged, shift, offsets):
    found, errors = plan(unchanged, "--topic", "events:0,1", "--shift-by", str(shift))
    assert found == offsets
    assert errors.count("Warning") == {1: 0, -3: 1, 100: 2}[shift]
    missing = pylog(unchanged, "groups", "reset-offsets", "--group", "g", "--topic", "events", "--shift-by", str(shift))
    assert missing.exit_code == 1
    assert "group g has no committed offset for events-2 to shift" in missing.stderr


def test_a_duration_reaches_back_from_now(clock, log, store, path):
    store.append("events", records(["k"], [b"v"], first=clock.ms - 90_000), partition=2)
    assert plan(path, "--topic", "events:2", "--by-duration", "PT2M")[0] == {2: 0}
    assert plan(path, "--topic", "events:2", "--by-duration", "PT1M")[0] == {2: 1}
    assert plan(path, "--topic", "events:2", "--by-duration", "PT-30M")[0] == {2: 1}


def test_all_topics_are_those_that_the_group_has_a_position_in(unchanged):
    found, errors = plan(unchanged, "--all-topics", "--to-earliest")
    assert found == {0: 4, 1: 0}
    assert errors == "Warning: group g: gone-0 is skipped, because there is no such partition\n"
    nothing = pylog(unchanged, "groups", "reset-offsets", "--group", "typo", "--all-topics", "--to-earliest")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert "group typo has no committed offsets" in nothing.stderr


def test_nothing_is_done_without_execute_and_then_it_is(log, path):
    arguments = ("groups", "reset-offsets", "--group", "g", "--topic", "events:0", "--to-earliest")
    shown = pylog(path, *arguments)
    assert "Nothing was changed. Give --execute" in shown.stderr
    assert committed(log)[EVENTS[0]] == 7
    done = pylog(path, *arguments, "--execute")
    assert (done.stdout, done.stderr) == (shown.stdout, "")
    assert committed(log) == {EVENTS[0]: 4, EVENTS[1]: 2, GONE: 9}


def test_an_unknown_group_is_created(log, path):
    output(path, "groups", "reset-offsets", "--group", "new", "--topic", "events", "--to-latest", "--execute")
    assert committed(log, "new") == {EVENTS[0]: 10, EVENTS[1]: 5, EVENTS[2]: 0}


def test_a_position_that_never_expires_still_never_does(log, path):
    for group, expiry in (("g", -1), ("monthly", NEVER)):
        log.commit(group, {EVENTS[0]: 7}, expire_timestamp=expiry)
        output(path, "groups", "reset-offsets", "--group", group, "--topic", "events", "--to-earliest", "--execute")
        assert {kept.expire_timestamp for at, kept in log.fetch(group).items() if at != GONE} == {expiry}
    rows = json.loads(output(path, "groups", "describe", "monthly", "--json"))
    assert {row["expire_timestamp"] for row in rows} == {"never"}


def test_of_several_groups_each_is_reset_by_itself(log, store, path, monkeypatch):
    """One has members, one is moved meanwhile, one has nothing that could be shifted; the others are done."""
    for group in ("busy", "moved", "other", "last"):
        log.commit(group, {EVENTS[0]: 7})
    append(store, "busy", coordinator_records.encode_group_key("busy"), members("other"))
    fetch = OffsetsLog.fetch

    def and_move(self, group):
        found = fetch(self, group)
        if group == "moved":
            log.commit("moved", {EVENTS[0]: 9})
        return found

    monkeypatch.setattr(OffsetsLog, "fetch", and_move)
    groups = ("g", "busy", "moved", "new", "other", "last")
    shift = ("groups", "reset-offsets", *groups, "--topic", "events:0", "--shift-by", "-1")
    result = pylog(path, *shift, "--execute")
    monkeypatch.undo()
    assert cells(result.stdout)[1:] == [[group, "events", "0", "6"] for group in ("g", "other", "last")]
    assert [line.split("] ")[0].split(" has ")[0] for line in result.stderr.splitlines()] == [
        "Error: 3 of 6 groups failed:",
        "  busy: [PYLOG_NON_EMPTY_GROUP",
        "  moved: [PYLOG_OFFSET_CONFLICT",
        "  new: group new",
    ]
    assert result.exit_code == 1
    assert {group: committed(log, group).get(EVENTS[0]) for group in groups} == {
        "g": 6,
        "busy": 7,
        "moved": 9,
        "new": None,
        "other": 6,
        "last": 6,
    }
    # The same without --execute, where nothing is moved meanwhile; and what is exported is what would be done.
    export = pylog(path, *shift, "--export", "--dry-run")
    assert export.stdout == "g,events,0,5\nmoved,events,0,8\nother,events,0,5\nlast,events,0,5\n"
    assert export.stderr.startswith("Error: 2 of 6 groups failed:\n")
    assert export.exit_code == 1
    # What is the same for all of them is checked before any.
    assert pylog(path, "groups", "reset-offsets", *groups, "--topic", "nope", "--to-latest", "--execute").stdout == ""
    assert committed(log)[EVENTS[0]] == 6


def test_a_store_that_is_only_read_is_refused_once(tmp_path):
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    for arguments in (["delete", "g", "h"], ["reset-offsets", "g", "h", "--topic", "t", "--to-latest", "--execute"]):
        refused = pylog(tmp_path, "groups", *arguments)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.startswith("Error: [PYLOG_READ_ONLY]")
        assert refused.stderr.count("\n") == 1


def test_what_is_reset_and_deleted_as_json(log, path):
    reset = ("groups", "reset-offsets", "g", "--topic", "events:0,1", "--to-latest", "--dry-run", "--json")
    assert json.loads(output(path, *reset)) == [
        {"group": "g", "topic": "events", "partition": 0, "new_offset": 10},
        {"group": "g", "topic": "events", "partition": 1, "new_offset": 5},
    ]
    assert pylog(path, *reset, "--export").exit_code == 2
    delete = ("groups", "delete-offsets", "--group", "g", "--topic", "events:1,2", "--yes", "--json")
    assert json.loads(output(path, *delete)) == [
        {"topic": "events", "partition": 1, "status": "deleted"},
        {"topic": "events", "partition": 2, "status": "nothing was committed"},
    ]


def test_an_export_can_be_taken_back_in(log, path, tmp_path):
    file = tmp_path / "offsets.csv"
    reset = ("groups", "reset-offsets", "--group", "g")
    exported = output(path, *reset, "--topic", "events:0,1", "--to-current", "--export", "--dry-run")
    assert exported == "events,0,7\nevents,1,2\n"
    file.write_text(exported)
    output(path, *reset, "--topic", "events", "--to-latest", "--execute")
    output(path, *reset, "--from-file", str(file), "--execute")
    assert committed(log) == {EVENTS[0]: 7, EVENTS[1]: 2, EVENTS[2]: 0, GONE: 9}
    file.write_text("events,0,3\nevents,1,99\ngone,0,1\n")
    assert plan(path, "--from-file", str(file))[0] == {0: 4, 1: 5}


def test_an_export_of_several_groups_names_them(log, path, tmp_path):
    file = tmp_path / "offsets.csv"
    log.commit('a "group", quoted', {EVENTS[1]: 1})
    reset = ("groups", "reset-offsets")
    exported = output(path, *reset, "--all-groups", "--all-topics", "--to-current", "--export", "--dry-run")
    assert exported == '"a ""group"", quoted",events,1,1\ng,events,0,7\ng,events,1,2\n'
    file.write_text(exported)
    output(path, *reset, "--all-groups", "--topic", "events", "--to-earliest", "--execute")
    output(path, *reset, "--group", "g", "--from-file", str(file), "--execute")
    output(path, *reset, "--all-groups", "--from-file", str(file), "--execute")
    assert committed(log) == {EVENTS[0]: 7, EVENTS[1]: 2, EVENTS[2]: 0, GONE: 9}
    assert committed(log, 'a "group", quoted') == {EVENTS[0]: 4, EVENTS[1]: 1, EVENTS[2]: 0}


def test_a_file_that_a_spreadsheet_has_saved_is_read(unchanged, tmp_path):
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"\xef\xbb\xbfevents,0,5\r\n\r\n events , 1 , 3 \r\n")
    assert plan(unchanged, "--from-file", str(file)) == ({0: 5, 1: 3}, "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("events,0\n", "line 2: 'events,0' is not a line like orders,0,1234"),
        ("events\n", "line 2: 'events' is not a line"),
        ("events,0,x\n", "line 2: 'events,0,x' is not a line"),
        ("events,0,\u0663\n", "line 2: "),
        ("events,1," + "9" * 5000, "line 2: "),
        ("a,events,0,1,2\n", "line 2: 'a,events,0,1,2' is not a line"),
        ("events,-1,2\n", "line 2: 'events,-1,2' is not a line"),
        ("even ts,1,2\n", "line 2: topic name 'even ts'"),
        ("\nevents,0,6\n", "line 3: events-0 appears twice"),
        ("\udcff", "is not a CSV file with lines like orders,0,1234"),
    ],
)
def test_a_file_that_says_nothing_clear_changes_nothing(unchanged, tmp_path, content, reason):
    file, before = tmp_path / "offsets.csv", committed(OffsetsLog(Store.open(unchanged)))
    file.write_bytes(b"events,0,5\n" + content.encode("utf-8", "surrogateescape"))
    arguments = ("--group", "g", "--from-file", str(file), "--execute")
    result = pylog(unchanged, "groups", "reset-offsets", *arguments)
    assert result.exit_code == 1
    assert str(file) in result.stderr
    assert reason in result.stderr
    assert committed(OffsetsLog(Store.open(unchanged))) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--to-latest"], 2),
        (["--topic", "events"], 2),
        (["--topic", "events", "--to-latest", "--to-earliest"], 2),
        (["--topic", "events", "--all-topics", "--to-latest"], 2),
        (["--topic", "events", "--to-latest", "--execute", "--dry-run"], 2),
        (["--topic", "events:0,", "--to-latest"], 2),
        (["--topic", "events", "--by-duration", "1h"], 2),
        (["--topic", "events", "--by-duration", "PT"], 2),
        (["--topic", "events", "--by-duration", "P9999999999D"], 2),
        (["--topic", "events", "--to-datetime", "yesterday"], 2),
        (["--topic", "events:3", "--to-latest"], 1),
        (["--topic", "missing", "--to-latest"], 1),
    ],
)
def test_a_reset_that_is_not_clear_is_refused(unchanged, arguments, code):
    assert pylog(unchanged, "groups", "reset-offsets", "--group", "g", *arguments).exit_code == code
