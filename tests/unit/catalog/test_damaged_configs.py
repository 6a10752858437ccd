"""A config in a topic's description that has a bad value: an error that names it, and a way to set it again."""

import json
from pathlib import Path

import pytest

from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.store import Store
from tests.store_tools import damages, new_store, rows, values


@pytest.fixture
def store(tmp_path):
    store = new_store(tmp_path)
    store.append("t", rows(b"a"))
    return store


def set_unchecked(store, name, value):
    path = Path(store.path, "topics", "t.json")
    content = json.loads(path.read_text())
    content["configs"][name] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "gzmp"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "compost"),
        ("message.timestamp.type", "LogAppendTimes"),
        ("min.cleanable.dirty.ratio", "half"),
    ],
)
def test_a_bad_value_is_reported_and_can_be_set_again(store, name, value):
    set_unchecked(store, name, value)
    used = Store.open(store.path)
    for use in (lambda: values(used), lambda: used.append("t", rows(b"b")), lambda: used.latest_offset("t", 0)):
        with pytest.raises(InvalidConfigError, match=rf"topic 't': {name} = '{value}': must be"):
            use()
    (found,) = damages(store.path)
    assert found.file == "topics/t.json"
    assert name in found.what
    used.alter_configs("t", delete=[name])
    assert values(used) == [b"a"]
    assert not damages(store.path)


def test_a_large_value_is_quoted_in_part(store):
    set_unchecked(store, "retention.ms", "1" * 100_000)
    with pytest.raises(InvalidConfigError, match=r"retention\.ms = '1+\.\.\. \(100000 characters\)'") as caught:
        values(Store.open(store.path))
    assert len(str(caught.value)) < 1000
