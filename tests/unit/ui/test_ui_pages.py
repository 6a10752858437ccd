"""The page of a store as a browser asks for it: what it shows, what it refuses, and that nothing in a store is run."""

import html
import json
import os
import re
import shlex
import shutil
import socket
import time
from urllib.parse import quote, urljoin

import pytest
from cli_tools import pylog

from pyspark_log import Store, TopicPartition
from pyspark_log.storage.groups.members.query_readers import text_of_this_process
from tests.ports import HOST
from tests.server_tools import PATIENCE
from tests.store_tools import rows
from tests.ui_tools import UiProcess, shown, without_tags

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


def publish(store, publisher, number, topic, *values):
    writer = store.publishes.writer(store.publishes.plan([topic]))
    writer.append(topic, rows(*values))
    store.publishes.publish(publisher, number, writer.finish(), location="/checkpoints/q")


def filled(path):
    with Store.create(path) as store:
        store.create_topic("orders", 3)
        store.create_topic("empty", 1)
        for number in range(60):
            store.append(
                "orders",
                [{"key": f"k{number % 5}", "value": f'{{"number": {number}}}', "headers": [("source", b"web")]}],
            )
        store.append("orders", [{"key": "gone", "value": None}])
        store.append("orders", [{"key": EVIL, "value": EVIL, "headers": [(EVIL, EVIL.encode())]}])
        publish(store, "spark-1", 7, "orders", b"published")
        for group, share in (("billing", 1), ("late/group " + EVIL, 2), ("..", 1), (".", 1), ("a&b=c#d%2e+e", 1)):
            store.groups[group].commit({
                TopicPartition("orders", one): store.latest_offset("orders", one) // share for one in range(3)
            })  # fmt: skip
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("pages") / "store")


@pytest.fixture(scope="module")
def page(path):
    with shown(path) as page:
        yield page


def links(body):
    return set(re.findall(r'href="(/[^"]*)"', body))


def test_the_pages(page):
    text = page.text("/")
    assert "Topics 2 4 partitions Records 63" in text
    assert re.search(r"orders 3 63 [\d.]+ KiB", text)
    assert re.search(r"orders 3 63 [\d.]+ KiB", page.text("/topics"))
    assert "__consumer_offsets" not in text
    assert "__consumer_offsets" in page.text("/?internal=1")
    assert "orders" not in page.text("/?filter=emp").partition("Topic ")[2]
    assert "No topic's name has none in it" in page.text("/?filter=none")
    text = page.text("/topics/orders")
    assert "billing" in text
    assert "Partitions 3 3 with records" in text
    assert "1 record" not in page.text("/topics/empty/records")
    assert "echo hello | pylog produce empty" in page.text("/topics/empty/records")
    assert re.search(r"spark-1 7 .* 1 orders /checkpoints/q", page.text("/publishes"))
    assert "billing Empty 0 orders 0" in page.text("/groups")
    assert "retention.ms 604800000 default 604800000 age of records after which" in page.text("/topics/orders")
    assert "This page has no server" in page.text("/server")


def test_each_link_leads_to_a_page(page):
    seen, left = set(), {"/"}
    while left:
        path = left.pop()
        seen.add(path)
        target = html.unescape(path)
        assert urljoin(page.url, target) == page.url + target  # a browser asks for the same
        status, _, body = page.get(target)
        assert status == 200, path
        assert "Traceback" not in body
        if path.count("/") < 5:
            left |= {link for link in links(body) if not link.startswith("/static/")} - seen
        assert len(seen) < 600
    assert len(seen) > 80


def test_a_group_of_any_name(page):
    assert {found for _, found in re.findall(r'href="(/groups\?[^"]*)">([^<]*)<', page.get("/groups")[2])} >= {
        ".",
        "..",
    }
    for link, name in re.findall(r'href="(/groups\?group=[^"]*)">([^<]*)<', page.get("/groups")[2]):
        assert f"<h1>{name}</h1>" in page.get(html.unescape(link))[2]


def test_nothing_in_a_store_is_a_tag(page):
    for path in ("/", "/groups", "/topics/orders", "/topics/orders/records?count=100", "/publishes"):
        _, headers, body = page.get(path)
        assert "<script>" not in body
        assert "<img src=x" not in body
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    # Of the request itself neither.
    for path in (
        "/<script>alert(1)</script>",
        "/?filter=%3Cscript%3E",
        "/topics/%3Cscript%3E",
        "/groups?group=%22%3E%3Cscript%3E",
    ):
        _, _, body = page.get(path)
        assert "<script>" not in body
    at = re.search(
        r'id="r(\d)-(\d+)">(?:(?!</tr>).)*?&lt;script', page.get("/topics/orders/records?count=100")[2], re.DOTALL
    )
    _, _, body = page.get(f"/topics/orders/records/{at[1]}/{at[2]}")
    assert body.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 4
    assert "<script>" not in body


def test_looks(page):
    text = page.text("/topics/orders/records?count=100")
    assert "63 records" in text
    assert '{"number": 59}' in text
    assert "tombstone" in text
    text = page.text("/topics/orders/records?by=key&at=k3")
    assert text.count('{"number": ') == 12
    assert "where Spark, pylog and Kafka's clients for Java put this key" in text
    assert "hex" in page.text("/topics/orders/records?by=key&at=hex:6b33&format=hex")
    text = page.text("/topics/orders/records?text=ER%22:+59&case=any")
    assert ('{"number": 59}' in text, text.count('{"number": ')) == (True, 1)
    assert "The search looked at 63 offsets of 3 partitions, and reached the start." in text
    assert "No such record was found" in page.text("/topics/orders/records?text=ER%22:+59&partition=1")
    assert page.text("/topics/orders/records?text=web&by=time&at=1h&count=9").count('{"number": ') == 9
    assert page.text("/topics/orders/records?text=web&by=key&at=k3").count('{"number": ') == 12
    assert page.text("/topics/orders/records?by=time&at=1h&count=100").count('{"number": ') == 60
    assert "There is no record of this time or later" in page.text(
        "/topics/orders/records?by=time&at=2100-01-01T00:00Z"
    )
    assert "Type an offset" in page.text("/topics/orders/records?by=offset")
    _, _, body = page.get("/topics/orders/records?by=offset&at=2&partition=1&count=3")
    assert re.findall(r'id="r1-(\d+)"', body) == ["2", "3", "4"]


def test_looks_with_an_end(page):
    def numbers(query):
        _, _, body = page.get(f"/topics/orders/records?{query}")
        return re.findall(r'id="r1-(\d+)"', body)

    assert numbers("by=offset&at=2&partition=1&until=5") == ["2", "3", "4"]
    assert numbers("by=offset&at=2&partition=1&until=2") == []
    assert len(numbers("partition=1&until=2100-01-01T00:00Z")) == len(numbers("partition=1")) > 10
    assert numbers("partition=1&until=1h") == numbers("by=time&at=2h&partition=1&until=1h") == []


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("live=1", 1), ("live=1&text=web", 2), ("live=1&text=web&rest=0-1", 0), ("live=1&until=1h", 0), ("text=web", 0)],
)
def test_what_is_renewed(page, query, seconds):
    _, _, body = page.get(f"/topics/orders/records?{query}")
    assert f'data-refresh="{seconds}"' in body


def test_configs_and_where_they_are_set(tmp_path):
    with Store.create(tmp_path / "store", {"log.retention.ms": "1000", "log.segment.bytes": "9000"}) as store:
        store.create_topic("t", 1, {"retention.ms": "2000"})
    with shown(tmp_path / "store") as page:
        text = page.text("/topics/t")
    assert "2 of 27 set" in text
    assert "Meaning retention.ms 2000 topic 604800000 age of records" in text
    assert "segment.bytes 9000 store 1073741824 size of a segment file [bytes] cleanup.policy delete default" in text


def test_a_query_says_where_it_runs(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.groups["g"].commit({TopicPartition("t", 0): 0}, text_of_this_process("copy <orders>"))
    with shown(tmp_path / "store") as page:
        where = rf"{socket.gethostname()}, process {os.getpid()} "
        said = rf"Last commit (just now|\d+ s ago) query copy <orders> on {where}"
        assert re.search(said, page.text("/groups?group=g"))
        assert re.search(r"g Query 0 t 0 .* (just now|\d+ s ago)", page.text("/groups"))


def test_commands_to_paste_work(page, path):
    for place in (
        "/topics/orders", "/topics/orders/records?text=%22number%22:+5&partition=1", "/publishes",
        "/groups?group=late/group+" + quote(EVIL),
    ):  # fmt: skip
        commands = [html.unescape(one) for one in re.findall(r'<pre tabindex="0">(.*?)</pre>', page.get(place)[2])]
        assert len(commands) > 2
        for command in commands:
            words = shlex.split(command)
            assert words[0] == "pylog"
            assert words[-2:] == ["--store", str(path)]
            if not {"delete", "delete-records", "alter", "tail"} & set(words):
                result = pylog(path, *words[1:-2])
                assert result.exit_code == 0, (command, result.stderr)
                if "--grep" in words:
                    assert [json.loads(line)["value"] for line in result.stdout.splitlines()]


def test_fields_as_columns(page):
    target = "/topics/orders/records?by=key&at=k3&columns=1"
    _, _, body = page.get(target)
    assert "Key number Headers" in without_tags(body)
    assert re.search(r'<td class="field" data-label="number"><code>58</code></td>', body)
    # Where it is older or newer, the page keeps the switch; what has no fields is shown as it is.
    assert "columns=1" in page.get("/topics/orders/records?count=5&partition=0&columns=1")[2].partition("pager")[2]
    assert "<script>alert(1)</script>" in page.text("/topics/orders/records?columns=1")


def test_what_is_shown_can_be_downloaded(page):
    status, headers, body = page.get("/topics/orders/records?by=key&at=k3&download=1")
    assert (status, headers["Content-Type"]) == (200, "application/x-ndjson")
    assert headers["Content-Disposition"] == 'attachment; filename="orders.jsonl"'
    records = [json.loads(line) for line in body.splitlines()]
    assert [record["value"] for record in records] == [f'{{"number": {number}}}' for number in range(58, 0, -5)]
    assert (records[0]["key"], records[0]["headers"]) == ("k3", [{"key": "source", "value": "web"}])
    place = f"/topics/orders/records/{records[0]['partition']}/{records[0]['offset']}"
    assert [json.loads(page.get(f"{place}?download=1")[2])] == records[:1]
    assert f'href="{place}?download=1"' in page.get(place)[2]


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/topics/none", 404, "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION]"),
        ("/topics/none/records", 404, "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION]"),
        ("/topics/orders/records?partition=9", 404, "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION]"),
        ("/topics/..%2F..%2Fetc/records", 400, "[PYLOG_INVALID_TOPIC]"),
        ("/groups?group=none", 404, "[PYLOG_GROUP_ID_NOT_FOUND]"),
        ("/topics/orders/records?by=offset&at=x", 400, "must be a whole number"),
        ("/topics/orders/records?by=offset&at=99999999999999999999", 400, "must be a whole number"),
        ("/topics/orders/records?partition=-1", 400, "must be a whole number"),
        ("/topics/orders/records?by=time&at=noon", 400, "neither ms since 1970 nor ISO-8601"),
        ("/topics/orders/records?by=time&at=999999999999999999999999", 400, "PYLOG"),
        ("/topics/orders/records?by=key&at=hex:0", 400, "pairs of 0-9"),
        ("/topics/orders/records?text=hex:0", 400, "pairs of 0-9"),
        ("/topics/orders/records?text=a&rest=0-1.x", 400, "expected partitions with offsets"),
        ("/topics/orders/records?text=a&rest=9-1", 404, "[PYLOG_UNKNOWN_TOPIC_OR_PARTITION]"),
        ("/topics/orders/records?until=noon", 400, "neither ms since 1970 nor ISO-8601"),
        ("/topics/orders/records?by=magic", 400, "must be last, offset, time or key"),
        ("/topics/orders/records?format=xml", 400, "must be one of auto"),
        ("/topics/orders/records/a/b", 400, "expected the numbers"),
        (f"/topics/orders/records/{'9' * 5000}/1", 400, "expected the numbers"),
        (f"/topics/orders/records?partition={'9' * 5000}", 400, "must be a whole number"),
        (f"/topics/orders/records?by=time&at={'9' * 5000}", 400, "digits"),
        ("/topics/%00%ff/records", 400, "[PYLOG_INVALID_TOPIC]"),
        ("/topics/orders/other", 404, "there is no page"),
        ("/none", 404, "there is no page /none"),
        ("/static/../app.py", 404, "there is no page"),
    ],
)
def test_what_is_refused(page, target, status, said):
    found, _, body = page.get(target)
    assert found == status
    assert said in without_tags(body)


def test_avro(tmp_path):
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    (tmp_path / "t-value.avsc").write_text(json.dumps(schema))
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.append("t", [{"key": "k", "value": b"\x0e"}])
    with shown(tmp_path / "store", "--schemas", tmp_path) as page:
        assert '{"n": 7}' in page.text("/topics/t/records?format=avro")
        text = page.text("/topics/t/records/0/0?format=avro")
        assert '"n": 7' in text
        assert "there is no schema" in text  # for the key
    with Store.open(tmp_path / "store") as store:
        store.alter_configs("t", {"value.format": "avro", "schema.registry": str(tmp_path)})
    with shown(tmp_path / "store") as page:
        assert '{"n": 7}' in page.text("/topics/t/records")


def test_a_group_of_a_partition_without_records(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.groups["g"].commit({TopicPartition("t", 0): 0})
    with shown(tmp_path / "store") as page:
        assert "t 0 0 0 0 -" in page.text("/groups?group=g")


def test_the_engines_own_topics(page):
    for topic in ("__consumer_offsets", "__pylog_publish"):
        assert topic in page.text("/?internal=1")
        assert page.text(f"/topics/{topic}").count("readable") > 0
        assert "records of" in page.text(f"/topics/{topic}/records")


def test_parts_of_tables(page):
    for start, shown_rows in ((0, 3), (2, 1), (3, 0), ("x", 3), ("9" * 5000, 3)):
        assert page.get(f"/topics/orders?from={start}")[2].count("readable") == shown_rows


def test_a_page_only_reads(page, path):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert page.get("/", method)[0] == 405
    assert page.get("/", "HEAD")[::2] == (200, "")


@pytest.mark.parametrize(
    ("name", "is_answered"),
    [
        ("localhost", True), ("LOCALHOST:80", True), ("127.0.0.1", True), ("[::1]:9", True), ("192.0.2.7", True),
        ("evil.example", False), ("evil.example:9309", False), ("127.0.0.1.evil.example", False), ("", False),
    ],
)  # fmt: skip
def test_another_site_cannot_pass_its_name_off_as_this_machine(page, name, is_answered):
    assert page.get("/", Host=name)[0] == (200 if is_answered else 421)


def test_names_that_are_allowed(path):
    with shown(path, "--host-name", "kafka.example") as page:
        assert page.get("/", Host="kafka.example:80")[0] == 200
        assert page.get("/", Host="other.example")[0] == 421


def test_other_addresses_want_to_be_allowed(path):
    result = pylog(path, "ui", "--listen", "0.0.0.0:0")
    assert result.exit_code == 2
    assert "--allow-anonymous" in result.stderr
    with socket.create_server((HOST, 0)) as taken:
        result = pylog(path, "ui", "--listen", f"{HOST}:{taken.getsockname()[1]}")
    assert (result.exit_code, "Address already in use" in result.stderr) == (1, True)


def test_without_the_library(path, monkeypatch):
    monkeypatch.setattr("pyspark_log.cli.support.address.find_spec", lambda _: None)
    assert pylog(path, "ui").stderr == "Error: the page needs Jinja2: pip install 'pyspark-log[ui]'\n"


def test_a_brokers_folder(root):
    with shown(root) as page:
        assert "No group has committed" in page.text("/topics/t")
        assert "A broker's folder does not have them" in page.text("/topics/t")
        text = page.text("/topics/t/records")
        assert "8 offsets without records, 4 to 11" in text
        assert "Nothing was published yet" in page.text("/publishes")


@pytest.mark.usefixtures("object_server")
def test_an_object_store(object_url):
    filled(object_url)
    with shown(object_url) as page:
        assert "Records 63" in page.text("/")
        assert page.text("/topics/orders/records?by=key&at=k3").count('{"number": ') == 12
        assert "63 records" in page.text("/topics/orders/records?count=100")


def test_an_empty_store(tmp_path):
    Store.create(tmp_path / "store").close()
    with shown(tmp_path / "store") as page:
        assert "pylog topics create orders" in page.text("/")
        assert "No groups yet" in page.text("/groups")


def test_a_store_that_is_gone_and_comes_back(tmp_path):
    filled(tmp_path / "store")
    page = UiProcess(tmp_path / "store")
    try:
        assert page.get("/")[0] == 200
        shutil.move(tmp_path / "store", tmp_path / "aside")
        wait_for_status(page, 503)
        shutil.move(tmp_path / "aside", tmp_path / "store")
        wait_for_status(page, 200)
        assert page.stop() == ""
    finally:
        page.kill()


def wait_for_status(page, status):
    end = time.monotonic() + PATIENCE
    while page.get("/")[0] != status:
        assert time.monotonic() < end
        time.sleep(0.1)
