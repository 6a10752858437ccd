"""The four slots of a state file: which one counts, which one is written, what a torn write costs."""

import pytest

from pyspark_log.storage import files, state_file
from pyspark_log.storage.errors import LogDamagedError, StoreVersionError
from pyspark_log.storage.state_file import EMPTY, Flags, Intent, PartitionState

FULL = PartitionState(
    flags=Flags.CUTTING, intent=Intent.APPLY, generation=2**32 - 1, seq=2**63, boot=b"12345678",
    unsynced_since=2**64 - 1,
    log_start=2**62, active_base=2**61, next_offset=2**60, position=2**31 - 1, synced=2**31 - 1, reserve=2**59,
    applied=2**58, first_undone=2**57, leader_epoch=2**31 - 1, intent_digest=2**32 - 1, intent_decision=2**56,
    intent_next=2**55, intent_base=2**54, intent_position=2**31 - 1,
)  # fmt: skip


@pytest.fixture
def file(tmp_path):
    path = str(tmp_path / "state")
    state_file.create(path)
    with files.open_write(path) as opened:
        yield opened


def test_a_slot_keeps_every_field():
    data = state_file.encode_slot(FULL)
    assert len(data) == state_file.SLOT_SIZE == 128
    assert state_file.decode_slot(data, "path") == FULL


@pytest.mark.parametrize("byte", range(128))
def test_a_slot_with_any_byte_changed_does_not_count(byte):
    data = bytearray(state_file.encode_slot(FULL))
    data[byte] ^= 1
    assert state_file.decode_slot(bytes(data), "path") is None


def test_a_file_of_zeros_is_an_error_that_names_it(file):
    file.pwrite(bytes(state_file.FILE_SIZE), 0)
    with pytest.raises(LogDamagedError, match=file.path):
        state_file.load(file)


def test_a_newer_version_is_an_error_of_its_own(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(state_file, "VERSION", 2)
        data = state_file.encode_slot(FULL)
    with pytest.raises(StoreVersionError, match="version 2"):
        state_file.decode_slot(data, "path")


@pytest.mark.parametrize(
    "impossible",
    [
        {"log_start": -1}, {"log_start": 11}, {"active_base": 11}, {"active_base": -1}, {"synced": 101},
        {"next_offset": 2**63 - 1}, {"reserve": -1}, {"leader_epoch": -1}, {"applied": -2}, {"first_undone": -1},
        {"intent": 1, "intent_decision": 5, "intent_next": 10}, {"intent": 1, "intent_decision": -1, "intent_next": 11},
        {"intent": 1, "intent_decision": 5, "intent_next": 11, "intent_base": 3},
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_an_error_that_names_the_file(file, impossible):
    possible = state_file.EMPTY._replace(log_start=2, active_base=4, next_offset=10, position=100, synced=100, seq=1)
    file.pwrite(state_file.encode_slot(possible), 0)
    assert state_file.load(file).state == possible
    file.pwrite(state_file.encode_slot(possible._replace(**impossible)), 0)
    with pytest.raises(LogDamagedError, match=file.path):
        state_file.load(file)


@pytest.mark.parametrize("unknown", [{"flags": 1 << 7}, {"intent": 7}])
def test_what_only_a_newer_version_can_have_written_says_so(file, unknown):
    file.pwrite(state_file.encode_slot(state_file.EMPTY._replace(seq=1, **unknown)), 0)
    with pytest.raises(StoreVersionError, match="use a newer pyspark-log"):
        state_file.load(file)


def test_the_newest_slot_counts_and_pairs_never_mix(file):
    loaded = state_file.load(file)
    assert loaded.state._replace(seq=0, boot=bytes(8)) == EMPTY
    slots = []
    for number, durable in enumerate([False, False, True, False, True, True, False], start=1):
        loaded = state_file.store(file, loaded, loaded.state._replace(next_offset=number), durable=durable)
        slots.append(loaded.slot)
        again = state_file.load(file)
        assert again == loaded
        assert again.state.next_offset == number
    # The first state stood in slot 2. Each pair is written in turn, the older slot first.
    assert slots == [0, 1, 3, 0, 2, 3, 1]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("torn_at", [0, 1, 17, 64, 124])
def test_a_torn_write_leaves_the_state_before_it(file, durable, torn_at):
    loaded = state_file.load(file)
    for number in range(1, 6):
        loaded = state_file.store(file, loaded, loaded.state._replace(next_offset=number), durable=number % 2 == 0)
    before = file.pread(state_file.FILE_SIZE, 0)
    after = state_file.store(file, loaded, loaded.state._replace(next_offset=99), durable=durable)
    at = after.slot * state_file.SLOT_DISTANCE + torn_at
    file.pwrite(before[at : after.slot * state_file.SLOT_DISTANCE + 128], at)
    assert state_file.load(file).state.next_offset == 5


def test_who_comes_second_to_create_keeps_the_first(file):
    loaded = state_file.load(file)
    state_file.store(file, loaded, loaded.state._replace(next_offset=7), durable=False)
    state_file.create(file.path)
    assert state_file.load(file).state.next_offset == 7
