"""The six requests, at a server."""

import pickle
import re
import time

import pytest

from pyspark_log import Store
from pyspark_log.errors import InvalidConfigError, ObjectStoreError
from pyspark_log.storage.objects import Objects, by_kind
from pyspark_log.storage.objects import objects as objects_module
from pyspark_log.storage.objects.address import ObjectAddress
from pyspark_log.storage.objects.objects import ObjectStatus
from pyspark_log.storage.objects.observer import Request
from tests.object_proxy import Answer, pass_on, proxy
from tests.ports import HOST, free_ports
from tests.processes import forked
from tests.store_tools import observed_requests


def test_what_is_put_is_read(objects):
    objects.put("a/b", b"first")
    assert bytes(objects.get("a/b").data) == b"first"
    objects.put("a/b", memoryview(b"second"))
    found = objects.get("a/b")
    assert (bytes(found.data), found.size) == (b"second", 6)
    assert objects.get("a") is None
    assert objects.get("a/c") is None


def test_the_first_bytes_of_an_object(objects):
    objects.put("large", b"0123456789")
    found = objects.get("large", 4)
    assert (bytes(found.data), found.size) == (b"0123", 10)
    found = objects.get("large", 100)
    assert (bytes(found.data), found.size) == (b"0123456789", 10)
    assert objects.get("missing", 4) is None
    objects.put("empty", b"")
    for most in (None, 4):
        found = objects.get("empty", most)
        assert (bytes(found.data), found.size) == (b"", 0)


@pytest.mark.parametrize("key", ["there", "missing"])
def test_an_answer_that_is_cut_is_asked_for_again(server, url, key):
    cut = []

    def cut_once(exchange):
        answer = pass_on(exchange)
        if exchange.method == "GET" and not cut:
            cut.append(answer.status)
            return Answer(answer.status, answer.headers, answer.body, cut=True)
        return answer

    with proxy(server, cut_once) as between:
        objects = Objects(url, between.options)
        objects.put("there", b"all of it")
        found = objects.get(key)
    assert cut == [200 if key == "there" else 404]
    assert found is None if key == "missing" else bytes(found.data) == b"all of it"


def test_of_several_creates_the_first_one_stays(objects):
    assert objects.create("once", b"first")
    assert not objects.create("once", b"second")
    assert bytes(objects.get("once").data) == b"first"
    objects.delete(["once"])
    assert objects.create("once", b"third")


def test_ranges_of_an_object(objects):
    objects.put("data", bytes(range(200)))
    found = objects.get_ranges("data", [(150, 10), (0, 3), (199, 1)])
    assert [bytes(one) for one in found] == [bytes(range(150, 160)), bytes(range(3)), bytes([199])]
    with pytest.raises(FileNotFoundError, match=r"/store.*/missing"):
        objects.get_ranges("missing", [(0, 1)])
    for start in (200, 1000):
        for others in ([], [(0, 4)]):
            with pytest.raises(EOFError, match=r"data: it (ends before|has 0 of)"):
                objects.get_ranges("data", [*others, (start, 10)])
    with pytest.raises(EOFError, match="has 5 of the 10 bytes from byte 195 on"):
        objects.get_ranges("data", [(195, 10)])


def test_lists(objects):
    for key in ("log/1", "log/2", "logs/3", "data/x/y"):
        objects.put(key, key.encode())
    assert sorted(objects.list("log")) == [ObjectStatus("log/1", 5), ObjectStatus("log/2", 5)]
    assert len(list(objects.list())) == 4
    assert list(objects.list("nothing")) == []
    assert list(objects.list("data/x")) == [ObjectStatus("data/x/y", 8)]


def test_a_list_of_many_pages_each_of_which_is_cut_once(server, url):
    """Pages of a hundred: the library gives fifty at once."""
    cut = []

    def cut_each(exchange):
        if "list-type" in exchange.path:
            exchange.path += "&max-keys=100"
        answer = pass_on(exchange)
        is_first = exchange.method == "GET" and "list-type" in exchange.path and len(cut) % 2 == 0
        if "list-type" in exchange.path:
            cut.append(is_first)
        return Answer(answer.status, answer.headers, answer.body, cut=True) if is_first else answer

    with proxy(server, cut_each) as between:
        direct, objects = Objects(url), Objects(url, between.options)
        for number in range(250):
            direct.put(f"many/{number:05}", b"")
        direct.put("other", b"")
        found = [one.key for one in objects.list("many")]
    assert sorted(found) == [f"many/{number:05}" for number in range(250)]
    assert sum(cut) == 3


def test_deletes(objects):
    for key in ("a", "b", "c"):
        objects.put(key, b"x")
    objects.delete(["a", "missing", "c"])
    objects.delete(["a"])
    objects.delete([])
    assert [one.key for one in objects.list()] == ["b"]


def test_deletes_that_others_make_at_the_same_time(server, url):
    """Some servers say then that an object is missing, and may leave the others."""
    refused = []

    def miss_one(exchange):
        if exchange.method == "POST" and len(re.findall(b"<Key>", exchange.body)) > 1:
            refused.append(exchange)
            key = re.search(b"<Key>.*?</Key>", exchange.body)[0]
            error = b"<Error>%s<Code>NoSuchKey</Code><Message>not there</Message></Error>" % key
            return Answer(200, body=b"<DeleteResult>%s</DeleteResult>" % error)
        return exchange.ask()

    with proxy(server, miss_one) as late:
        objects = Objects(url, {**server.options, "endpoint": late.endpoint})
        for key in ("a", "b", "c"):
            objects.put(key, b"x")
        objects.delete(["a", "b"])
        assert [one.key for one in objects.list()] == ["c"]
        assert refused


def test_a_test_sees_each_request_before_and_after(objects):
    seen = []
    with observed_requests(seen.append):
        objects.create("x", b"123")
        objects.get("x")
        list(objects.list("y"))
    assert seen == [
        Request("create", "x", 3), Request("create", "x", 3, is_done=True), Request("get", "x"),
        Request("get", "x", is_done=True), Request("list", "y"), Request("list", "y", is_done=True),
    ]  # fmt: skip

    def stop(_):
        raise KeyboardInterrupt

    with observed_requests(stop), pytest.raises(KeyboardInterrupt):
        objects.put("never", b"")
    assert objects.get("never") is None


@pytest.mark.parametrize("objects", ["server"], indirect=True)
def test_objects_that_were_used_before_a_fork_work_in_the_child(objects):
    """Also in a child of the child, and in both at once; and those that come by pickle, as to Spark's tasks."""
    objects.put("before", b"x")
    sent = pickle.dumps(objects)

    def use():
        assert bytes(objects.get("before").data) == b"x"
        assert not objects.create("before", b"y")
        assert pickle.loads(sent).get("missing") is None

    def use_and_fork():
        use()
        with forked(use):
            use()

    for each in (use_and_fork, use):
        with forked(each):
            use()


def test_what_is_wrong_is_said_without_secrets(server, url):
    quick = {**server.options, "secret_access_key": "hush"}
    nowhere = Objects("s3://no-such-bucket/x", quick)
    with pytest.raises(FileNotFoundError, match="s3://no-such-bucket/x/key"):
        nowhere.put("key", b"")
    assert "hush" not in repr(nowhere)
    with pytest.raises(InvalidConfigError, match="nonsense") as caught:
        Objects(url, {**quick, "nonsense": "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize(
    "answer",
    [
        b"<Error><Code>ExpiredToken</Code><Message>Expired.</Message><Token-0>hush</Token-0></Error>",
        b"<?xml version='1.0'?>\n<Error><Code>ExpiredToken</Code><Token-0>hush</Token-0></Error>",
        b"<Error>\n<CanonicalRequest>GET\nx-amz-security-token:hush</CanonicalRequest><Code>ExpiredToken</Code></Error>",
    ],
)
def test_an_answer_that_quotes_a_secret_is_not_shown(server, url, status, answer):
    with proxy(server, lambda _: Answer(status, body=answer)) as refusing:
        objects = Objects(url, {**refusing.options, "session_token": "hush"})
        for request in (
            lambda: objects.get("key"),
            lambda: objects.put("key", b"x"),
            lambda: objects.create("key", b"x"),
            lambda: list(objects.list()),
            lambda: objects.delete(["key", "other"]),
            lambda: objects.get_ranges("key", [(0, 1)]),
        ):
            with pytest.raises(ObjectStoreError, match=f"status code: {status} [A-Za-z ]+, ExpiredToken$") as caught:
                request()
            assert "hush" not in str(caught.value)
            assert caught.value.retriable == (status == 400)
            assert ("is not allowed" in str(caught.value)) == (status == 403)


def test_an_address_with_a_password_is_shown_without_it(server, url, monkeypatch):
    monkeypatch.setattr(objects_module, "_RETRIES", 0)
    [port] = free_ports(1)
    for name in ("endpoint", "proxy_url"):
        objects = Objects(url, {**server.options, name: f"http://user:hush@{HOST}:{port}"})
        with pytest.raises(ObjectStoreError, match="get has failed") as caught:
            objects.get("key")
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name", "value"),
    [
        ("s3://b/p", "skip_signature", "hush"),
        ("s3://b/p", "skip_signature", 'hush "hush"'),
        ("s3://b/p", "checksum_algorithm", "hush"),
        ("s3://b/p", "timeout", "hush"),
        ("s3://b/p", "allow_invalid_certificates", "hush"),
        ("s3://b/p", "default_headers", "hush"),
        ("gs://b/p", "service_account", "/no/hush"),
        ("gs://b/p", "service_account_key", '{"private_key": "hush"}'),
        ("az://b/p", "account_key", "hush!"),
    ],
)
def test_an_option_that_is_refused_is_named_without_its_value(url, name, value):
    given = {name: value, **({"account_name": "a"} if url.startswith("az") else {})}
    with pytest.raises(InvalidConfigError, match=url) as caught:
        Objects(url, given)
    assert "hush" not in str(caught.value)
    assert name in str(caught.value) or name.startswith(("service", "account"))


def test_options_of_the_connection(server, url):
    names = {
        "allow_http": "true", "allow_invalid_certificates": "false", "connect_timeout": "5 seconds",
        "default_content_type": "text/plain", "http1_only": "true", "http2_keep_alive_interval": "5 seconds",
        "http2_keep_alive_timeout": "5 seconds", "http2_keep_alive_while_idle": "false",
        "http2_max_frame_size": "20000", "http2_only": "false", "pool_idle_timeout": "5 seconds",
        "pool_max_idle_per_host": "2", "proxy_excludes": "x", "randomize_addresses": "false",
        "read_timeout": "5 seconds", "timeout": "20 seconds", "user_agent": "tests",
    }  # fmt: skip
    found = Objects(url, {**server.options, **names})
    found.put("key", b"data")
    assert found.get("key").data == b"data"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket/a", "s3://bucket/a"),
        ("gs://b/x=1/y", "gs://b/x=1/y"),
        ("abfss://container@account.dfs.core.windows.net/x", "az://container@account.dfs.core.windows.net/x"),
    ],
)
def test_addresses(url, expected):
    assert str(ObjectAddress.parse(url)) == expected
    assert by_kind(url, folder=False, objects=True)


@pytest.mark.parametrize(
    "url", ["s3:///x", "s3://", "s3://b/a//b", "s3://b/../x", "s3://b/a b", "s3://b/a?x", "s4://b/x"]
)
def test_refused_addresses(url):
    with pytest.raises(InvalidConfigError):
        ObjectAddress.parse(url)


@pytest.mark.parametrize("path", ["/a/b", "a", "file:/a", "file:///a", "C:/x", "hdfs://x/y"])
def test_paths_that_are_no_addresses(path):
    assert by_kind(path, folder=True, objects=False)


@pytest.mark.slow
@pytest.mark.parametrize("answer", [Answer(503), None], ids=["busy", "cut"])
def test_a_server_that_is_away_for_a_while(object_server, monkeypatch, answer):
    """Requests are tried for half a minute."""
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    back = time.monotonic() + 20

    def away(exchange):
        return pass_on(exchange) if time.monotonic() > back else answer

    with proxy(object_server, away) as between:
        monkeypatch.setenv("AWS_ENDPOINT", between.endpoint)
        objects = Objects(f"s3://{object_server.bucket}/away")
        objects.put("key", b"value")
        assert time.monotonic() > back
        assert bytes(objects.get("key").data) == b"value"


def test_for_how_long_a_request_is_tried(monkeypatch):
    """The library may give up by a number of tries, too, which must not come first."""
    monkeypatch.setattr(objects_module, "_RETRY_SECONDS", 2)
    [port] = free_ports(1)
    options = {"endpoint": f"http://{HOST}:{port}", "region": "r", "access_key_id": "a", "secret_access_key": "b"}
    begun = time.monotonic()
    with pytest.raises(ObjectStoreError, match="retry_timeout: 2s"):
        Objects("s3://bucket/x", options).get("key")
    assert time.monotonic() - begun >= 2


def test_a_bucket_that_is_not_there(served_url):
    """It is no empty one: its name, or the endpoint, may be wrong."""
    for call in (Objects("s3://no-such-bucket/x").get, lambda _: Store.open("s3://no-such-bucket/x")):
        with pytest.raises(ObjectStoreError, match=r"no-such-bucket/x: there is no bucket .* \(NoSuchBucket\)"):
            call("store.json")
    assert Objects(served_url).get("store.json") is None
