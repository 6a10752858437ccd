"""`pylog` with a store in an object store."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main
from tests.object_server import moto


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with moto(tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture
def pylog(server, monkeypatch):
    """Runs a command; what it prints."""
    for name in ("endpoint", "access_key_id", "secret_access_key", "region"):
        monkeypatch.setenv(f"AWS_{name.upper()}", server.options[name])
    monkeypatch.setenv("PYLOG_STORE", f"s3://{server.bucket}/store")

    def run(*arguments, code=0):
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_a_store_from_its_first_topic_on(pylog):
    assert "Created a new store in s3://bucket/store" in pylog("topics", "create", "orders", "--partitions", "2")
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


@pytest.mark.parametrize(
    "command", [["verify"], ["compact"], ["clean"], ["recover"], ["serve"], ["log-dirs", "list"]], ids=" ".join
)
def test_what_works_on_files_is_refused(pylog, command):
    assert "s3://bucket/store is in an object store" in pylog(*command, code=2)


def test_a_store_that_is_missing(pylog, server, monkeypatch):
    monkeypatch.setenv("PYLOG_STORE", f"s3://{server.bucket}/missing")
    assert "there is no store at s3://bucket/missing" in pylog("topics", "list", code=1)
