"""That the last run of a node has ended in order is noted, and believed once."""

import json

import pytest

from pyspark_log.server.cluster.registration import NO_EPOCH
from pyspark_log.server.node.clean_shutdown import note_clean_shutdown, take_clean_shutdown
from pyspark_log.storage.fs import files

NAME = ".kafka_cleanshutdown"


@pytest.fixture
def folders(tmp_path):
    """Two log dirs."""
    made = [tmp_path / "one", tmp_path / "two"]
    for folder in made:
        folder.mkdir()
    return list(map(str, made))


def path(folder):
    return f"{folder}/{NAME}"


def write(folder, text):
    with open(path(folder), "w") as file:
        file.write(text)


def test_it_is_believed_once(folders):
    note_clean_shutdown(folders, 17)
    for folder in folders:
        with open(path(folder)) as file:
            assert json.load(file) == {"version": 0, "brokerEpoch": 17}
    assert take_clean_shutdown(folders) == 17
    assert not any(files.exists(path(folder)) for folder in folders)
    assert take_clean_shutdown(folders) == NO_EPOCH


def test_all_log_dirs_must_have_it(folders):
    note_clean_shutdown(folders[:1], 17)
    assert take_clean_shutdown(folders) == NO_EPOCH
    assert take_clean_shutdown(folders[:1]) == NO_EPOCH, "it was taken away"


def test_all_must_be_of_the_same_run(folders):
    note_clean_shutdown(folders[:1], 17)
    note_clean_shutdown(folders[1:], 18)
    assert take_clean_shutdown(folders) == NO_EPOCH


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", '{"version":1,"brokerEpoch":17}', '{"version":0,"brokerEpoch":"17"}', '{"version":0}',
        '{"version":0,"brokerEpoch":-1}', "x" * 5000,
    ],
)  # fmt: skip
def test_what_is_invalid_is_not_believed(folders, text, caplog):
    write(folders[0], text)
    assert take_clean_shutdown(folders[:1]) == NO_EPOCH
    assert "is invalid" in caplog.text
    assert not files.exists(path(folders[0]))


def test_that_of_kafka_is_believed(folders):
    # As Jackson writes it; other fields are Kafka's to add.
    write(folders[0], '{"version":0,"brokerEpoch":105}')
    assert take_clean_shutdown(folders[:1]) == 105


def test_both_are_durable(folders):
    changes = []
    files.set_observer(lambda change: changes.append((change.kind, change.path)))
    try:
        note_clean_shutdown(folders[:1], 17)
        noted = len(changes)
        take_clean_shutdown(folders[:1])
    finally:
        files.set_observer(None)
    assert changes[noted - 1] == ("sync_folder", folders[0])
    assert changes[noted:] == [("unlink", path(folders[0])), ("sync_folder", folders[0])]
