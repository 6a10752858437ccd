"""Documents of servers, each an object that a decision names: changes at the same time, and damage."""

import pytest

from pyspark_log import Store
from pyspark_log.errors import DescriptionError, ObjectStoreError
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log import naming
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.serving.documents import Documents
from tests.store_tools import observed_requests, rows, values

NAME = "users.json"


@pytest.fixture
def documents_of(objects):
    """Those as another process each has them."""
    return lambda: Documents(PublishLog(objects, lambda: 5000))


def _text(documents):
    documents.look()
    current = documents.current(NAME)
    return None if current is None else current[1].decode()


def _add(documents, letter):
    documents.change(NAME, lambda current: (b"" if current is None else current[1]) + letter.encode())


def _kept(objects):
    return [one.key for one in objects.list(naming.DOCUMENTS)]


def test_a_change_is_seen_elsewhere_and_nothing_is_left(documents_of, objects):
    first, second = documents_of(), documents_of()
    assert _text(first) is None
    _add(first, "a")
    _add(second, "b")
    assert (_text(first), _text(second), len(_kept(objects))) == ("ab", "ab", 1)
    second.change("acls.json", lambda _: b"x")
    _add(first, "c")
    assert (_text(second), len(_kept(objects))) == ("abc", 2)


def test_of_two_changes_at_the_same_time_none_is_lost(documents_of, objects):
    first, second, tries = documents_of(), documents_of(), []

    def add_late(current):
        tries.append(current)
        if len(tries) < 3:
            _add(second, str(len(tries)))
        return (b"" if current is None else current[1]) + b"first"

    first.change(NAME, add_late)
    assert (_text(second), len(tries)) == ("12first", 3)
    assert len(_kept(objects)) == 1


def test_one_that_was_replaced_since_it_was_named(documents_of, objects):
    """It is deleted at once, as it may be secret."""
    documents = documents_of()
    _add(documents, "a")
    log = PublishLog(objects, lambda: 5000)
    late, before = Documents(log), log.follow()
    _add(documents, "b")
    late.take(before)
    assert late.current(NAME)[1] == b"ab"
    # What is newer stays.
    late.take(before)
    assert late.current(NAME)[1] == b"ab"


def test_damage_is_no_empty_document(documents_of, objects):
    documents = documents_of()
    _add(documents, "a")
    assert _text(documents) == "a"
    [name] = _kept(objects)
    objects.put(name, b"b")
    # One that has it in memory knows that it cannot be another one.
    assert _text(documents) == "a"
    other = documents_of()
    with pytest.raises(DescriptionError, match=rf"{name} is damaged: bring back an older version"):
        _text(other)
    with pytest.raises(DescriptionError, match="is damaged"):
        _add(other, "c")
    objects.put(name, b"a")
    assert _text(other) == "a"


def test_one_that_is_missing_is_no_empty_one_before_it_is_changed(documents_of, objects):
    documents = documents_of()
    _add(documents, "a")
    objects.delete(_kept(objects))
    other = documents_of()
    with pytest.raises(DescriptionError, match=r"is missing: .* or begin with an empty list"):
        _text(other)
    _add(other, "c")
    assert (_text(other), _text(documents)) == ("c", "c")


def test_one_that_may_not_be_read_now(documents_of, objects, monkeypatch):
    _add(documents_of(), "a")
    documents, get = documents_of(), Objects.get

    def denied(self, key, most=None):
        if key.startswith(naming.DOCUMENTS):
            raise ObjectStoreError(f"{key}: get is not allowed", retriable=False)
        return get(self, key, most)

    with monkeypatch.context() as patched:
        patched.setattr(Objects, "get", denied)
        for ask in (_text, lambda one: _add(one, "c")):
            with pytest.raises(DescriptionError, match=r"users\.json: access/.*: get is not allowed"):
                ask(documents)
    assert _text(documents) == "a"


def test_only_servers_ask_for_them(object_url):
    """So a rule of the bucket can keep them from jobs."""
    store = ObjectStore.create(object_url)
    _add(Documents(store.log), "secret")
    requests = []
    with observed_requests(requests.append):
        store = Store.open(object_url)
        store.create_topic("t", 1)
        store.append("t", rows(b"x"))
        assert values(store) == [b"x"]
        store.clean()
    asked = {request.kind for request in requests if request.key.startswith(naming.DOCUMENTS)}
    assert asked == {"list"}
    assert b"secret" not in b"".join(bytes(store.log.objects.get(name).data) for name in _named(store.log.objects))


def _named(objects):
    return [one.key for one in objects.list() if not one.key.startswith(naming.DOCUMENTS)]
