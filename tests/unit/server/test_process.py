"""The server as a process: how it starts and ends, and what it leaves."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from server_requests import batch, fetch, fetch_request, produce, values

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.server import ServerConfig, serve
from tests.forked import pylog_in_another_process
from tests.paths import ROOT
from tests.security_tools import Authority, name
from tests.server_tools import NewServer, Peer, Server, served


@pytest.fixture
def path(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
    return tmp_path / "store"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals(path, tmp_path, number, code):
    server = NewServer(path, tmp_path).start()
    with Peer(server) as peer:
        produce(peer, "t", batch(b"a"))
        assert server.stop(number) == code
        assert peer.is_closed_by_server()
    assert not (tmp_path / "ready").exists()
    assert [line.split(" ", 3)[3] for line in server.output().splitlines()] == [
        f"serving {path} as node 1 on {server.bootstrap}",
        f"stopping after {signal.Signals(number).name}",
        "stopped",
    ]


def test_a_client_that_waits_does_not_delay_the_end(path, tmp_path):
    server = Server(path, tmp_path).start()
    with Peer(server) as peer:
        peer.send(fetch_request("t", 0, wait=600_000), 12)
        assert server.stop() == 0


def test_killed_at_any_time_and_started_again(path, tmp_path):
    server = Server(path, tmp_path)
    acknowledged = 0
    for _ in range(5):
        server.start()
        with Peer(server) as peer:
            for _ in range(20):
                assert produce(peer, "t", batch(b"%d" % acknowledged)).base_offset == acknowledged
                acknowledged += 1
            server.kill()
    with Store.open(path) as store:
        rows = [row for rows in store.read("t", 0) for row in rows.to_pylist()]
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(acknowledged)]


def test_as_many_partitions_stay_open_as_the_system_has_files_for(path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16_000, 16_000))
    store = Store.open(path)
    assert serve(store, ServerConfig(port=0), lambda _: os.kill(os.getpid(), signal.SIGTERM)) == signal.SIGTERM
    assert store.logs.most_writers == 1000


def test_a_second_server_is_refused(path, tmp_path):
    with served(path, tmp_path) as first:
        done = _serve(path, "--listen", "127.0.0.1:0")
        assert done.returncode == 1
        assert "another server serves this store" in done.stderr
        with Peer(first) as peer:
            assert produce(peer, "t", batch(b"a")).base_offset == 0


def test_an_address_that_is_taken(path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _serve(path, "--listen", f"127.0.0.1:{port}")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"Error: cannot listen on 127.0.0.1:{port}: Address already in use",
    )


def test_an_address_that_is_nowhere(path):
    done = _serve(path, "--listen", "no-such-host.invalid:9092")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: cannot listen on no-such-host.invalid:9092: ")


@pytest.mark.parametrize("address", ["nonsense:x", ":9092", "host:99999", "19092", "HTTP://host:9092"])
def test_what_is_no_address(path, address):
    done = _serve(path, "--listen", address)
    assert (done.returncode, "is no HOST:PORT" in done.stderr) == (2, True)


def test_kafkas_way_of_an_address(path, tmp_path):
    with served(path, tmp_path, "--advertise", "PLAINTEXT://kafka.example:9094") as server:
        server.wait_for("advertised as kafka.example:9094")


@pytest.mark.parametrize("options", [(), ("--tls-client-auth", "requested")])
def test_others_are_not_served_without_authentication(path, tmp_path, options):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", name(CN="server"))
    if options:
        options += ("--tls-certificate", certificate, "--tls-key", key, "--tls-client-ca", authority.certificate)
    done = _serve(path, "--listen", "0.0.0.0:0", *map(str, options))
    assert done.returncode == 1
    assert re.fullmatch(
        r"Error: \S+ on 0\.0\.0\.0:\d+ others than this machine could read and write without authentication: "
        r"have clients authenticate themselves \(docs/guides/security\.md\), or allow that by --allow-anonymous\n",
        done.stderr,
    )


@pytest.mark.parametrize("option", ["--listen", "--ui-listen"])
def test_no_store_is_made_for_what_is_refused(tmp_path, option):
    done = _serve(tmp_path / "new", "--listen", "127.0.0.1:0", option, "0.0.0.0:0")
    assert (done.returncode, "without authentication" in done.stderr) == (1, True)
    assert not (tmp_path / "new").exists()


def test_a_store_that_is_made_is_named_once(tmp_path):
    with served(tmp_path / "new", tmp_path) as server:
        assert server.output().count("reated a") == 1


def test_a_name_of_this_machine_is_no_other(path, tmp_path):
    server = Server(path, tmp_path)
    server.bootstrap = f"localhost:{server.port}"
    assert server.start().stop() == 0


def test_it_says_that_others_can_reach_it(path, tmp_path):
    server = Server(path, tmp_path, "--allow-anonymous")
    server.bootstrap = f"0.0.0.0:{server.port}"
    server.start().stop()
    assert "has no authentication: anything that reaches it may read and write" in server.output()


def test_the_ready_file_of_a_server_that_was_killed(path, tmp_path):
    """It is deleted before anything else; so a start that fails leaves none, either."""
    ready = tmp_path / "left"
    ready.write_text("127.0.0.1:1")
    assert _serve(tmp_path / "nowhere" / "store", "--ready-file", str(ready)).returncode == 1
    assert not ready.exists()
    done = _serve(path, "--ready-file", str(tmp_path / "nowhere" / "ready"))
    assert (done.returncode, "--ready-file" in done.stderr, "is missing" in done.stderr) == (2, True, True)


def test_a_ready_file_in_the_current_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = Server(path, ".")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    server.start()
    assert (tmp_path / "ready").read_text() == f"{server.bootstrap}\n"
    assert server.stop() == 0


def test_the_manager_is_notified(path, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with served(path, tmp_path):
            assert manager.recv(100) == b"READY=1"


def test_a_brokers_folder_is_served_for_reading(root, tmp_path):
    with Store.open(root) as store:
        rows = [row for rows in store.read("t", 0) for row in rows.to_pylist()]
    with served(root, tmp_path) as server, Peer(server) as peer:
        found, offset = {}, rows[0]["offset"]
        while offset <= rows[-1]["offset"]:
            got = values(fetch(peer, "t", offset))
            found |= got
            offset = max(got) + 1
        assert found == {row["offset"]: row["value"] for row in rows}
        assert produce(peer, "t", batch(b"a")).error_code == 29


class _ReadOnlyServer(Server):
    """A server that sees its store mounted for reading only, which stops root, too."""

    def start(self):
        mount = f"mount --bind {self.path} {self.path} && mount -o remount,bind,ro {self.path}"
        self.interpreter = ("unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable)
        return super().start()


def _may_mount(folder):
    command = ["unshare", "-m", "sh", "-c", f"mount --bind {folder} {folder}"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


def test_a_folder_that_may_not_be_written(path, tmp_path):
    with Store.open(path) as store:
        store.append("t", [{"value": b"x"}])
    if os.geteuid():
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o500)
        server = Server(path, tmp_path)
    elif _may_mount(path):
        server = _ReadOnlyServer(path, tmp_path)
    else:
        pytest.skip("root may write anywhere, and this one may not mount a folder for reading only")
    try:
        with Peer(server.start()) as peer:
            assert list(values(fetch(peer, "t", 0))) == [0]
            answer = produce(peer, "t", batch(b"a"))
            assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert server.stop() == 0, server.output()
    finally:
        server.kill()
    assert "is served for reading only" in server.output()


def _serve(path, *options):
    return pylog_in_another_process("serve", "--store", path, *options)


def test_acks_all_is_synced_if_wanted(path, tmp_path):
    with Store.open(path) as store, served(path, tmp_path, "--sync-acks-all") as server, Peer(server) as peer:
        reader = store.logs.reader("t", 0)
        for acks, is_synced in ((1, False), (-1, True), (1, False)):
            assert produce(peer, "t", batch(b"a"), acks=acks).error_code == 0
            state = reader.state()
            assert (state.synced == state.position) == is_synced


def test_connections_are_logged_if_wanted(path, tmp_path):
    with served(path, tmp_path, "--verbose") as server:
        with Peer(server) as peer:
            peer.ask(m.ApiVersionsRequest("some-client", "1.0"), 3)
            host, port = peer.socket.getsockname()
        for what in ("connected", "some-client 1.0", "disconnected"):
            server.wait_for(f"{host}:{port}: {what}")
