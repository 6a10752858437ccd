"""The authentication of a connection, by a clock that the test moves: how long it lasts, and how often it is done."""

import sys

import pytest

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import ClosedByServerError, Wait
from pyspark_log.server.security import SaslConfig, TokenConfig
from pyspark_log.server.security.attempts import Attempts
from pyspark_log.server.security.mechanisms import Identity, RefusedLoginError
from pyspark_log.server.security.sasl import AUTHENTICATE, HANDSHAKE, Login, Sasl

_METADATA = 3


class _Loop:
    """Its clock moves by what is waited for."""

    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now

    def call_later(self, seconds, action, *arguments):
        self.now += seconds
        action(*arguments)
        return self

    def cancel(self):
        pass


class _Exchange:
    """Takes a name, after a message `more`."""

    identity = None

    async def answer(self, data):
        if data == b"more":
            return b"and"
        if data == b"wrong":
            raise RefusedLoginError("it is wrong")
        if data == b"broken":
            raise OSError("no disk")
        self.identity = Identity(data.decode(), None)
        return b"well"


class _Sasl:
    mechanisms = ("ONE", "TWO")

    def __init__(self, max_session=None):
        self.loop, self.max_session = _Loop(), max_session
        self.attempts = Attempts(self.loop)

    def exchange(self, _mechanism):
        return _Exchange()


def _result(coroutine):
    """What a coroutine returns that waits for nothing that has not happened."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _frame(key):
    return key.to_bytes(2, "big") + bytes(6)


def _log_in(login, data=b"anna"):
    assert login.begin("ONE") == ErrorCode.NONE
    return _result(login.answer(data))


def test_a_client_is_known_after_its_last_message():
    login = Login(_Sasl(), "10.0.0.1")
    assert login.begin("ONE") == ErrorCode.NONE
    answer = _result(login.answer(b"more"))
    assert (answer.data, login.principal, login.is_done) == (b"and", None, False)
    with pytest.raises(ClosedByServerError):
        login.check(_frame(_METADATA))
    answer = _result(login.answer(b"anna"))
    assert (answer.data, answer.lifetime_ms, login.principal, login.is_done) == (b"well", 0, "User:anna", True)
    login.check(_frame(_METADATA))


def test_nothing_is_refused_while_a_session_lasts():
    sasl = _Sasl(max_session=10)
    login = Login(sasl, "10.0.0.1")
    assert _log_in(login).lifetime_ms == 10_000
    sasl.loop.now += 10
    login.check(_frame(_METADATA))
    sasl.loop.now += 0.1
    login.check(_frame(HANDSHAKE))
    for key in (_METADATA, AUTHENTICATE):
        with pytest.raises(ClosedByServerError, match="User:anna has not authenticated itself again in time"):
            login.check(_frame(key))
    assert _log_in(login).lifetime_ms == 10_000
    login.check(_frame(_METADATA))


def test_the_time_of_a_session_is_exact_to_the_millisecond():
    sasl = _Sasl(max_session=4)
    sasl.loop.now = 4095.39
    assert (sasl.loop.now + 4) - sasl.loop.now < 4
    assert _log_in(Login(sasl, "10.0.0.1")).lifetime_ms == 4000


def test_a_client_authenticates_itself_again_once_a_second():
    sasl = _Sasl()
    login = Login(sasl, "10.0.0.1")
    assert _log_in(login).code == ErrorCode.NONE
    # By the same mechanism, and nothing else is served meanwhile.
    assert login.begin("TWO") == ErrorCode.ILLEGAL_SASL_STATE
    login = Login(sasl, "10.0.0.1")
    assert _log_in(login).code == login.begin("ONE") == ErrorCode.NONE
    with pytest.raises(ClosedByServerError):
        login.check(_frame(_METADATA))
    assert _result(login.answer(b"anna")).code == ErrorCode.NONE
    assert login.begin("ONE") == ErrorCode.ILLEGAL_SASL_STATE
    assert (login.refusal, login.is_done) == (None, True)
    sasl.loop.now += 1
    assert _log_in(login).code == ErrorCode.NONE


@pytest.mark.parametrize("data", [b"bert", b"wrong", b"broken"])
def test_a_failure_ends_the_connection_also_later(data):
    sasl = _Sasl()
    login = Login(sasl, "10.0.0.1")
    assert _log_in(login).code == ErrorCode.NONE
    before = sasl.loop.now
    answer = _log_in(login, data)
    assert (answer.code, answer.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "authentication by ONE failed")
    assert sasl.loop.now == pytest.approx(before + 0.1)
    assert login.refusal is not None
    assert login.principal == "User:anna"


@pytest.mark.parametrize(("mechanism", "needed"), [("SCRAM-SHA-256", "scramp"), ("OAUTHBEARER", "joserfc")])
def test_what_a_mechanism_needs(monkeypatch, mechanism, needed):
    monkeypatch.setitem(sys.modules, needed, None)
    tokens = TokenConfig("keys", "issuer", "audience") if needed == "joserfc" else None
    with pytest.raises(InvalidConfigError, match=rf"{mechanism} needs {needed}: pip install"):
        Sasl(_Loop(), SaslConfig((mechanism,), None, tokens), None, None)


@pytest.mark.parametrize("config", [
    SaslConfig(("GSSAPI",)), SaslConfig(()), SaslConfig(("OAUTHBEARER",)),
    SaslConfig(("PLAIN",), None, TokenConfig("keys", "issuer", "audience")),
])  # fmt: skip
def test_what_cannot_be(config):
    with pytest.raises(InvalidConfigError):
        Sasl(_Loop(), config, None, None)


def test_a_wait_that_is_given_up():
    """Such as that of a client which leaves."""
    sasl = _Sasl()
    cancelled = []
    sasl.loop.call_later = lambda *_: sasl.loop
    sasl.loop.cancel = lambda: cancelled.append(True)
    login = Login(sasl, "10.0.0.1")
    login.begin("ONE")
    coroutine = login.answer(b"wrong")
    assert isinstance(coroutine.send(None), Wait)
    coroutine.close()
    assert cancelled == [True]
