"""The examination of object stores: of one that is right, and of some that are not."""

import json
import threading

import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main
from pyspark_log.storage.maintenance.doctor import Verdict, examine_objects, object_checks
from pyspark_log.storage.objects import Objects, race
from tests.object_proxy import Answer, ignore_the_condition, pass_on, proxy
from tests.object_server import PATIENCE

_RACERS = 2
_BOTH = threading.Barrier(_RACERS, timeout=PATIENCE)
_ALL = ["obstore", "permissions", "read after write", "create", "race", "latency"]


def both_win(exchange):
    """A server that keeps the condition in two steps: it looks for all racers before it writes for the first."""
    if not exchange.is_create:
        return pass_on(exchange)
    if exchange.ask("HEAD", body=b"").status == 200:
        return Answer(412, body=b"<Error><Code>PreconditionFailed</Code></Error>")
    if "race-" in exchange.path:
        _BOTH.wait()
    return ignore_the_condition(exchange)


@pytest.mark.parametrize(
    ("behaviour", "failed", "measured"),
    [
        (ignore_the_condition, "create", "the server ignores If-None-Match"),
        (both_win, "race", "1 of 50 races of 8 processes had more than one winner"),
    ],
)
def test_a_server_that_does_not_keep_the_condition(server, url, behaviour, failed, measured, monkeypatch):
    monkeypatch.setattr(race, "RACERS", _RACERS)
    monkeypatch.setattr(race, "ROUNDS", 1)
    monkeypatch.setattr(object_checks, "_ROUNDS", 1)
    with proxy(server, behaviour) as bad:
        findings = list(examine_objects(url, bad.options))
    assert findings[-1].name == failed
    assert findings[-1].verdict is Verdict.FAILED
    assert measured in findings[-1].measured
    assert all(one.verdict is Verdict.OK for one in findings[:-1])


def test_a_cache_before_the_server(server, url):
    """It remembers what was not there."""
    missed = set()

    def remember(exchange):
        if exchange.method == "GET" and exchange.path in missed:
            return Answer(404, body=b"<Error><Code>NoSuchKey</Code></Error>")
        answer = pass_on(exchange)
        if answer.status == 404:
            missed.add(exchange.path)
        return answer

    with proxy(server, remember) as bad:
        findings = list(examine_objects(url, bad.options))
    assert (findings[-1].name, findings[-1].verdict) == ("read after write", Verdict.FAILED)


def test_what_is_not_allowed(server, url):
    def refuse(exchange):
        if exchange.method == "DELETE" or (exchange.method == "POST" and "delete" in exchange.path):
            return Answer(403, body=b"<Error><Code>AccessDenied</Code></Error>")
        return pass_on(exchange)

    with proxy(server, refuse) as bad:
        findings = list(examine_objects(url, bad.options))
    assert (findings[-1].name, findings[-1].verdict) == ("permissions", Verdict.FAILED)
    assert "delete is not allowed" in findings[-1].measured


def test_the_command_at_a_server_that_is_right(url):
    result = CliRunner().invoke(main, ["doctor", url, "--json"])
    assert result.exit_code == 0, result.output
    findings = {one["name"]: one["verdict"] for one in json.loads(result.output)}
    assert findings == dict.fromkeys(_ALL, "ok"), result.output
    assert list(Objects(url).list()) == []
    result = CliRunner().invoke(main, ["doctor", "s3://no-such-bucket/x"])
    assert result.exit_code == 1
    assert "no-such-bucket" in result.output
    result = CliRunner().invoke(main, ["doctor", url, "--peer"])
    assert (result.exit_code, "--peer is for folders" in result.output) == (2, True)


def test_a_lost_answer_is_tried_again(server, url):
    """The object is there then, and the next try is refused: only a read shows whose it is."""
    lost = []

    def lose(exchange):
        answer = pass_on(exchange)
        if exchange.is_create and not lost:
            lost.append(exchange.path)
            return None
        return answer

    with proxy(server, lose) as asked:
        objects = Objects(url, asked.options)
        assert not objects.create("once", b"mine")
        assert bytes(objects.get("once").data) == b"mine"
    assert lost


def test_a_busy_server_is_asked_again(server, url):
    answers = []

    def be_busy(exchange):
        answers.append(exchange.method)
        return Answer(503, body=b"<Error><Code>SlowDown</Code></Error>") if len(answers) < 4 else pass_on(exchange)

    with proxy(server, be_busy) as asked:
        Objects(url, asked.options).put("late", b"x")
    assert answers == ["PUT"] * 4
