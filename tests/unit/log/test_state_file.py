"""The four slots of a state file: which one counts, which one is written, what a torn write costs."""

import errno
import fcntl
import os
import threading
import time

import pytest

from pyspark_log.errors import LogDamagedError, StoreVersionError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log.state.partition_state import EMPTY, SLOT_SIZE, Flags, Intent, PartitionState
from pyspark_log.storage.log.state.state_file import SLOT_DISTANCE
from pyspark_log.storage.record.checksum import crc32c
from tests.store_tools import observed

FULL = PartitionState(
    flags=Flags.CUTTING, intent=Intent.APPLY, generation=2**32 - 1, seq=2**63, boot=b"12345678",
    unsynced_since=2**64 - 1,
    log_start=2**62, active_base=2**61, next_offset=2**60, position=2**31 - 1, synced=2**31 - 1, reserve=2**59,
    applied=2**58, first_undone=2**57, leader_epoch=2**31 - 1, intent_digest=2**32 - 1, intent_decision=2**56,
    intent_next=2**55, intent_base=2**54, intent_position=2**31 - 1, log_dir=2**16 - 1, high_watermark=2**53,
    incarnation=2**32 - 1, truncations=2**32 - 2, owner_epoch=2**52, owner_node=2**31 - 1, local_log_start=2**51,
    copied_up_to=2**50,
)  # fmt: skip
LATER_FIELDS_AT = 176  # after the last field of this version


@pytest.fixture
def file(tmp_path):
    path = str(tmp_path / "state")
    state_file.create(path)
    with files.open_write(path) as opened:
        yield opened


def grown(state, offset):
    return state._replace(next_offset=offset, high_watermark=offset)


def test_a_slot_keeps_every_field():
    assert all(FULL), "a field that is 0 here could be left out of the slot"
    data = partition_state.encode_slot(FULL)
    assert len(data) == SLOT_SIZE == 256
    assert partition_state.decode_slot(data, "path") == FULL


@pytest.mark.parametrize("byte", range(SLOT_SIZE))
def test_a_slot_with_any_byte_changed_does_not_count(byte):
    data = bytearray(partition_state.encode_slot(FULL))
    data[byte] ^= 1
    assert partition_state.decode_slot(bytes(data), "path") is None


def test_a_file_of_zeros_is_an_error_that_names_it(file):
    file.pwrite(bytes(state_file.FILE_SIZE), 0)
    with pytest.raises(LogDamagedError, match=file.path):
        state_file.load(file)


def test_a_newer_version_is_an_error_of_its_own(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(partition_state, "VERSION", 3)
        data = partition_state.encode_slot(FULL)
    with pytest.raises(StoreVersionError, match="version 3"):
        partition_state.decode_slot(data, "path")


def test_an_older_version_is_an_error_of_its_own(file):
    # As version 1 has it: 128 bytes, with the CRC at their end.
    body = bytes([1, 0, 0, 0]) + bytes(4) + (7).to_bytes(8, "big") + bytes(108)
    slot = body + crc32c(body).to_bytes(4, "big")
    file.pwrite(bytes(2 * SLOT_DISTANCE) + slot + bytes(state_file.FILE_SIZE - 2 * SLOT_DISTANCE - len(slot)), 0)
    with pytest.raises(StoreVersionError, match=r"version 1 .* knows version 2"):
        state_file.load(file)


def test_fields_that_a_later_version_added_are_passed_over():
    data = bytearray(partition_state.encode_slot(FULL))
    assert not any(data[LATER_FIELDS_AT:-4])
    data[LATER_FIELDS_AT : LATER_FIELDS_AT + 8] = b"\x01new one"
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "big")
    assert partition_state.decode_slot(bytes(data), "path") == FULL


def test_records_that_are_in_another_storage_are_not_taken_for_lost(file):
    state = EMPTY._replace(log_start=2, next_offset=9, high_watermark=9, local_log_start=5, seq=1)
    file.pwrite(partition_state.encode_slot(state), 0)
    with pytest.raises(StoreVersionError, match="offset 2 to 5 are in another storage"):
        state_file.load(file)


@pytest.mark.parametrize(
    "impossible",
    [
        {"log_start": -1}, {"log_start": 11}, {"high_watermark": 11}, {"high_watermark": 1},
        {"active_base": 11}, {"active_base": -1}, {"synced": 101},
        {"next_offset": 2**63 - 1}, {"reserve": -1}, {"leader_epoch": -1}, {"applied": -2}, {"first_undone": -1},
        {"intent": 1, "intent_decision": 5, "intent_next": 10}, {"intent": 1, "intent_decision": -1, "intent_next": 11},
        {"intent": 1, "intent_decision": 5, "intent_next": 11, "intent_base": 3},
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_an_error_that_names_the_file(file, impossible):
    possible = EMPTY._replace(
        log_start=2, active_base=4, next_offset=10, high_watermark=10, position=100, synced=100, seq=9
    )
    file.pwrite(partition_state.encode_slot(possible), 0)
    assert state_file.load(file).state == possible
    file.pwrite(partition_state.encode_slot(possible._replace(**impossible)), 0)
    with pytest.raises(LogDamagedError, match=file.path):
        state_file.load(file)


@pytest.mark.parametrize("unknown", [{"flags": 1 << 7}, {"intent": 7}])
def test_what_only_a_newer_version_can_have_written_says_so(file, unknown):
    file.pwrite(partition_state.encode_slot(partition_state.EMPTY._replace(seq=9, **unknown)), 0)
    with pytest.raises(StoreVersionError, match="use the pyspark-log that wrote it"):
        state_file.load(file)


def test_the_newest_slot_counts_and_pairs_never_mix(file):
    loaded = state_file.load(file)
    assert loaded.state._replace(seq=0, boot=bytes(8)) == EMPTY
    slots = []
    for number, durable in enumerate([False, False, True, False, True, True, False], start=1):
        loaded = state_file.store(file, loaded, grown(loaded.state, number), durable=durable)
        slots.append(loaded.slot)
        again = state_file.load(file)
        assert again == loaded
        assert again.state.next_offset == number
    # The first state was in slot 2. Each pair is written in turn, the older slot first.
    assert slots == [0, 1, 3, 0, 2, 3, 1]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("torn_at", [17, 64, 124, 200, 252])
def test_a_write_that_a_power_loss_has_torn_leaves_the_state_before_it(file, monkeypatch, durable, torn_at):
    after = torn(file, durable, torn_at)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"next one")
    loaded = state_file.load(file)
    assert loaded.state.next_offset == 5
    assert loaded.torn == (after.slot,)
    assert state_file.read(file.path) == loaded


def torn(file, durable, torn_at):
    """Five states, and the first bytes of a sixth over the slot that it is written to."""
    loaded = state_file.load(file)
    for number in range(1, 6):
        loaded = state_file.store(file, loaded, grown(loaded.state, number), durable=number % 2 == 0)
    before = file.pread(state_file.FILE_SIZE, 0)
    after = state_file.store(file, loaded, grown(loaded.state, 99), durable=durable)
    at = after.slot * SLOT_DISTANCE + torn_at
    file.pwrite(before[at : after.slot * SLOT_DISTANCE + SLOT_SIZE], at)
    return after


@pytest.mark.parametrize("durable", [False, True])
def test_a_slot_that_no_power_loss_explains_is_damage_which_is_named(file, durable):
    after = torn(file, durable, 64)
    for read in (lambda: state_file.load(file), lambda: state_file.read(file.path)):
        with pytest.raises(LogDamagedError, match=rf"{file.path}: slot {after.slot} \(at byte {after.slot * 512}\)"):
            read()


def test_on_a_shared_file_system_no_host_knows_of_the_power_losses_of_others(file, monkeypatch):
    torn(file, durable=False, torn_at=64)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"next one")
    monkeypatch.setattr(state_file, "is_shared", lambda _: True)
    with pytest.raises(LogDamagedError, match="is damaged"):
        state_file.load(file)


def test_the_slots_that_a_power_loss_has_torn_are_repaired_before_the_new_boot_id_is_there(file, monkeypatch):
    torn(file, durable=False, torn_at=64)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"next one")
    loaded = state_file.rewrite_torn_slots(file, state_file.load(file))
    state_file.store(file, loaded, loaded.state._replace(boot=b"next one"), durable=True)
    found = state_file.load(file)
    assert found.torn == ()
    assert found.state.next_offset == 5


def test_a_slot_that_is_being_written_is_waited_for(file, monkeypatch):
    monkeypatch.setattr(state_file, "_PATIENCE", 120)
    after = torn(file, durable=False, torn_at=64)
    whole = partition_state.encode_slot(after.state)
    fcntl.flock(file.fd, fcntl.LOCK_EX)  # as its writer does
    writer = threading.Thread(target=lambda: (time.sleep(0.05), os.pwrite(file.fd, whole, after.slot * SLOT_DISTANCE)))
    writer.start()
    try:
        assert state_file.read(file.path) == after
    finally:
        writer.join()


def test_a_slot_that_was_written_just_before_its_writer_went_is_looked_at_again(file):
    """Between the read that met it half written and the read that finds no writer at work."""
    looks = ["half written", "whole"]
    assert state_file.read_until_settled(file.path, lambda: looks.pop(0), lambda found: found == "whole") == "whole"


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("written", [0, 100, SLOT_SIZE])
def test_of_a_write_that_fails_no_part_stays(file, durable, written):
    loaded = state_file.load(file)
    for number in range(1, 6):
        loaded = state_file.store(file, loaded, grown(loaded.state, number), durable=number % 2 == 0)

    def fail(change):
        files.set_observer(None)
        os.pwrite(file.fd, change.data[:written], change.position)
        raise OSError(errno.EIO, "failed")

    with observed(fail), pytest.raises(OSError, match="failed"):
        state_file.store(file, loaded, grown(loaded.state, 6), durable=durable)
    # What is there whole may have been seen.
    assert state_file.read(file.path).state.next_offset == (6 if written == SLOT_SIZE else 5)


def test_the_second_creator_keeps_the_first_file(file):
    loaded = state_file.load(file)
    state_file.store(file, loaded, grown(loaded.state, 7), durable=False)
    state_file.create(file.path)
    assert state_file.load(file).state.next_offset == 7
