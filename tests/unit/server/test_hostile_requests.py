"""Requests with damaged bytes of all APIs, of clients without a login and of a user with few rights.

Each is answered or closes its connection, and the server continues. What the user may not see is in no answer, nothing
of it changes, and no file outside the store is touched. PYLOG_DAMAGED_REQUESTS says how many; docs/internals/testing.md
has what was run.
"""

import random

import pytest
from server_requests import DAMAGED, batch, damaged_frame, produce

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource
from pyspark_log.server.security.users import Users
from tests.documents import documents_at
from tests.requests import NO_ID
from tests.rights_requests import Names, requests
from tests.security_tools import add_users, log_in
from tests.server_tools import Peer, served

# What a server may take more than before, in bytes, however many of them it gets.
_ROOM = 100_000_000
_PASSWORD = "a long password"
#: What no answer may have in it. It is in names and records, and in a file beside the store.
_SECRET = b"7f3a-secret"
_HIDDEN = f"hidden-{_SECRET.decode()}"
#: What clients without a login may ask for, by the numbers of the APIs.
_LOGIN = {17, 18, 36}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "beside").write_bytes(_SECRET)
    with Store.create(folder / "store") as store:
        for topic in ("own-topic", _HIDDEN):
            store.create_topic(topic, 1)
    add_users(folder / "store", {"carl": _PASSWORD, _HIDDEN: _PASSWORD})
    own = ((kind, "own-", Pattern.PREFIXED) for kind in (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID))
    Acls(documents_at(folder / "store"), ()).change(
        lambda _: [Acl(*one, "User:carl", "*", Operation.ALL, Permission.ALLOW) for one in own]
    )
    return folder


@pytest.fixture(scope="module")
def server(folder):
    options = ("--sasl-mechanisms", "PLAIN,SCRAM-SHA-256", "--acls", "--super-users", f"User:{_HIDDEN}")
    with served(folder / "store", folder, *options) as running:
        with Peer(running) as peer:
            assert log_in(peer, _HIDDEN, _PASSWORD).error_code == 0
            produce(peer, _HIDDEN, batch(_SECRET))
        yield running


@pytest.fixture
def unchanged(folder, server):
    """What must be the same afterwards."""
    before, memory = _state(folder), server.resident()
    yield
    assert _state(folder) == before
    assert server.resident() - memory < _ROOM


def _state(folder):
    path = folder / "store"
    with Store.open(path) as store:
        rows = [row["value"] for rows in store.read(_HIDDEN, 0) for row in rows.to_pylist()]
        described = store.describe_topic(_HIDDEN)
    beside = {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in ("store", "output")}
    return rows, described, Users(documents_at(path)).all(), Acls(documents_at(path), ()).rules().acls, beside


def _frames(peer, chance, wanted):
    """A damaged request: its bytes, and whether they are fewer than they say."""
    request, version = chance.choice(wanted)
    frame = damaged_frame(peer.encoded(request, version), chance)
    return frame, int.from_bytes(frame[:4], "big") > len(frame) - 4


def _answer(peer, frame, is_short):
    """What the server answers, without its length; None: it has closed the connection, or waits."""
    try:
        peer.socket.sendall(frame)
        if is_short:
            peer.socket.shutdown(1)
        return peer.receive(int.from_bytes(peer.receive(4), "big"))
    except (TimeoutError, ConnectionError):
        return None


def _another(server, chance):
    """A client from another address, as those that fail too often are slowed down."""
    return Peer(server, f"127.{chance.randint(1, 200)}.{chance.randint(1, 200)}.{chance.randint(1, 200)}")


def _wanted(topic):
    return list(requests(Names(topic, NO_ID, "own-group", "own-id", "carl")).values())


@pytest.mark.parametrize("count", DAMAGED)
def test_without_a_login(server, unchanged, count):
    chance = random.Random(41)
    login = [
        (m.SaslHandshakeRequest("PLAIN"), 1), (m.ApiVersionsRequest("tests", "1"), 3),
        (m.SaslAuthenticateRequest(b"\0carl\0wrong"), 2),
    ]  # fmt: skip
    wanted = login * 5 + _wanted(_HIDDEN)
    answered = 0
    for _ in range(count):
        with _another(server, chance) as peer:
            if chance.random() < 0.5:
                peer.ask(m.SaslHandshakeRequest(chance.choice(["PLAIN", "SCRAM-SHA-256"])), 1)
            peer.socket.settimeout(0.3)
            frame, is_short = _frames(peer, chance, wanted)
            answer = _answer(peer, frame, is_short)
            if answer is not None:
                answered += 1
                assert int.from_bytes(frame[4:6], "big") in _LOGIN, frame
                assert _SECRET not in answer
    assert answered > count / 50


@pytest.mark.parametrize("count", DAMAGED)
def test_of_a_user_with_few_rights(server, unchanged, count):
    chance = random.Random(42)
    wanted = _wanted("own-topic") + _wanted(_HIDDEN)
    sent = answered = 0
    while sent < count:
        with _another(server, chance) as peer:
            assert log_in(peer, "carl", _PASSWORD).error_code == 0
            peer.socket.settimeout(0.3)
            answer = b""
            while answer is not None and sent < count:
                frame, is_short = _frames(peer, chance, wanted)
                answer = _answer(peer, frame, is_short)
                sent += 1
                # A refused name is in its answer, as the client has sent it.
                assert _SECRET not in (answer or b"") or _SECRET in frame, (frame, answer)
                answered += answer is not None
    assert answered > count / 10
