"""`pylog` with a store in an object store."""

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main


@pytest.fixture
def pylog(object_url, monkeypatch):
    """Runs a command; what it prints."""
    monkeypatch.setenv("PYLOG_STORE", object_url)

    def run(*arguments, code=0):
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.mark.usefixtures("object_server")
def test_a_store_from_its_first_topic_on(pylog, object_url, caplog):
    assert f"Created a new store in {object_url}" in pylog("topics", "create", "orders", "--partitions", "2")
    assert f"{object_url}: looking for some seconds whether a store can be kept there" in caplog.text
    assert "orders" in pylog("topics", "list")
    # It reads its input by the file's number.
    command = [sys.executable, "-m", "pyspark_log.cli.start", "produce", "orders", "--key-separator", ":"]
    subprocess.run(command, input="anna:12\nbob:7\n", text=True, check=True)
    assert sorted(pylog("consume", "orders", "--from-beginning", "--max-messages", "2").split()) == ["12", "7"]
    assert pylog("du").splitlines()[-1].split() == ["total", "2", "2", "2", "2", "146", "B"]
    assert pylog("offsets", "orders").splitlines()[1].split()[:5] == ["orders", "0", "0", "1", "1"]
    pylog("groups", "reset-offsets", "g", "--to-latest", "--topic", "orders", "--execute")
    assert "g" in pylog("groups", "list")
    assert pylog("groups", "describe", "g").splitlines()[1].split()[:3] == ["g", "orders", "0"]
    pylog("topics", "alter", "orders", "--partitions", "4")
    assert " 4 " in pylog("topics", "describe", "orders")
    assert "orders" in pylog("top", "--once")
    pylog("topics", "delete", "orders", "--yes")
    assert "orders" not in pylog("topics", "list")


def test_upkeep(pylog, object_url):
    store, url = Store.create(object_url), object_url
    store.create_topic("t", 1, {"cleanup.policy": "compact"})
    store.create_topic("old", 1, {"retention.ms": "1000"})
    for number in range(5):
        store.append("t", [{"key": b"a", "value": b"%d" % number}])
        store.append("old", [{"value": b"x", "timestamp": datetime(2020, 1, 1, tzinfo=UTC)}])
    assert pylog("--store", url, "merge") == "10 pieces (695 B) merged into 2\n"
    assert pylog("--store", url, "merge", "t") == "0 pieces (0 B) merged into 0\n"
    [document] = json.loads(pylog("--store", url, "compact", "t", "--json"))
    assert (document["records_before"], document["records_after"], document["cleaned_to"]) == (5, 1, 5)
    assert pylog("--store", url, "compact") == "nothing to compact\n"
    assert pylog("--store", url, "clean", "t") == "0 pieces removed, 0 objects deleted\n"
    assert pylog("--store", url, "clean") == "1 piece removed, 0 objects deleted\n"
    assert [row["value"] for rows in store.read("t", 0) for row in rows.to_pylist()] == [b"4"]


def test_verify(pylog, object_url):
    store, url = Store.create(object_url), object_url
    store.create_topic("t", 1)
    store.append("t", [{"value": b"a"}])
    assert "no damage: 1 written partition, 1 segment, 1 batches, 1 record" in pylog("--store", url, "verify")
    name = "log/00000000000000000001"
    store.log.objects.put(name, bytes(store.log.objects.get(name).data)[:-1] + b"!")
    document = json.loads(pylog("--store", url, "verify", "--json", code=1))
    [finding] = document["findings"]
    assert document["damaged"]
    assert (finding["severity"], finding["topic"], finding["partition"]) == ("damage", "t", 0)
    assert (finding["file"], finding["first_offset"], finding["next_offset"]) == (name, 0, 1)
    assert f"t-0, {name}, byte {finding['position']}, offsets 0..0" in pylog("--store", url, "verify", code=1)


def test_backup(pylog, object_url, tmp_path):
    store, url = Store.create(object_url), object_url
    store.create_topic("t", 1)
    store.append("t", [{"value": b"a"}])
    text = pylog("--store", url, "backup", "--into", str(tmp_path / "copy"))
    assert f"copied 1 partition, 69 B, into {tmp_path}/copy" in text
    document = json.loads(pylog("--store", f"{tmp_path}/copy", "backup", "--into", f"{url}-again", "--json"))
    assert (document["path"], document["bytes"]) == (f"{url}-again", 69)
    assert "no damage" in pylog("--store", f"{url}-again", "verify")
    assert [row["value"] for rows in Store.open(f"{url}-again").read("t", 0) for row in rows.to_pylist()] == [b"a"]
    assert "is not empty" in pylog("--store", url, "backup", "--into", f"{url}-again", code=1)


def test_merge_is_for_object_stores(pylog, tmp_path):
    Store.create(tmp_path / "store")
    assert "is in a folder" in pylog("--store", str(tmp_path / "store"), "merge", code=2)


@pytest.mark.parametrize("command", [["recover"], ["repair", "--into", "copy"], ["log-dirs", "list"]], ids=" ".join)
def test_what_works_on_files_is_refused(pylog, object_url, command):
    assert f"{object_url} is in an object store" in pylog(*command, code=2)


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["export-kafka", "t", "out", "--topic-id", "x"], "backup --into FOLDER"),
        (["mirror", ".", "--topics", "t"], "backup --into URL"),
    ],
)
def test_what_is_done_by_way_of_a_folder(pylog, tmp_path, monkeypatch, command, instead):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0/00000000000000000000.log").touch()
    text = pylog(*command, code=2)
    assert "is in an object store" in text
    assert f"pylog {instead}" in text


def test_a_store_that_is_missing(pylog, object_url):
    assert f"there is no store at {object_url}" in pylog("topics", "list", code=1)


def test_an_object_store_that_is_silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = {
            "AWS_ENDPOINT": f"http://127.0.0.1:{server.getsockname()[1]}", "AWS_REGION": "r",
            "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
        }  # fmt: skip
        command = [sys.executable, "-m", "pyspark_log.cli.start", "topics", "list", "--store", "s3://bucket/store"]
        run = subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)
        with server.accept()[0] as connection:
            said = run.stderr.readline()
            assert said.startswith("s3://bucket/store: the object store has not answered yet")
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            assert "there is no store at s3://bucket/store" in run.communicate()[1]
