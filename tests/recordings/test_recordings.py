"""Whole sessions of clients that were recorded at Kafka, repeated at a server: it answers as Kafka did.

Differences on purpose are in differences.py. `make recordings` makes the recordings.
"""

import pytest

from tests.recordings.differences import KNOWN
from tests.recordings.events import FOLDER, load, path_of
from tests.recordings.replayer import Replay
from tests.recordings.sessions import SESSIONS
from tests.recordings.timeless import served_timeless


@pytest.fixture
def server(tmp_path):
    with served_timeless(tmp_path) as running:
        yield running


@pytest.mark.parametrize("name", SESSIONS)
def test_the_answers_are_kafkas(server, name):
    found = Replay(load(name), server).run()
    known = [one for one in KNOWN if one.is_of(name)]
    unknown = {str(one) for one in found if not any(kind.covers(one) for kind in known)}
    assert unknown == set()
    over = [kind for kind in known if kind.always and not any(kind.covers(one) for one in found)]
    assert over == [], "these differ no more"


def test_each_recording_is_of_a_session():
    assert {path.stem for path in FOLDER.glob("*.xz")} == set(SESSIONS)
    assert sum(path_of(name).stat().st_size for name in SESSIONS) < 500_000


@pytest.mark.parametrize("name", ["java-groups", "kafka-python-rebalance", "confluent-administer-groups"])
def test_another_code_is_found(server, name):
    replay = Replay(load(name), server, change=_with_other_codes)
    # Each answer has one code at least.
    found = {one.where.split()[0] for one in replay.run() if one.where.endswith("error_code")}
    assert found == replay.names


def _with_other_codes(value):
    """A response, or a part of one, with other error codes."""
    if hasattr(value, "_fields"):
        parts = {name: _with_other_codes(part) for name, part in value._asdict().items()}
        return value._replace(**parts | ({"error_code": value.error_code + 1} if "error_code" in parts else {}))
    return [_with_other_codes(part) for part in value] if isinstance(value, (list, tuple)) else value


def test_another_byte_of_a_record_is_found(server):
    found = Replay(load("aiokafka-resume"), server, change=_with_another_value).run()
    assert {one.where.split(" of ")[0] for one in found if one.where.startswith("Fetch")} == {"Fetch 11 batch at 0"}


def _with_another_value(value):
    """A response, or a part of one, with another value in one record of each batch of the session."""
    if isinstance(value, memoryview):
        return bytes(value).replace(b"value 13", b"value 14")
    if hasattr(value, "_fields"):
        return value._replace(**{name: _with_another_value(part) for name, part in value._asdict().items()})
    return [_with_another_value(part) for part in value] if isinstance(value, (list, tuple)) else value
