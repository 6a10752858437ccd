"""A store in Azure's blobs, as Azurite serves them: what is not S3's protocol."""

import concurrent.futures

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from tests.object_server import azurite


@pytest.fixture
def url(tmp_path, monkeypatch):
    """Where a store may be created; the environment has the credentials."""
    with azurite(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield f"az://{server.bucket}/store"


@pytest.mark.slow
def test_a_store_from_its_creation_to_its_backup(url, tmp_path):
    def run(*arguments):
        done = CliRunner().invoke(main, [str(one) for one in arguments])
        assert done.exit_code == 0, done.output
        return done.output

    # Also the race for a name.
    run("doctor", url)
    store = Store.create(url)
    store.create_topic("t", 2)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: Store.open(url).append("t", [{"value": b"%d" % number}]), range(40)))
    for command in ("merge", "clean", "verify"):
        run(command, "--store", url)
    run("backup", "--store", url, "--into", tmp_path / "copy")
    for kept in (Store.open(url), Store.open(tmp_path / "copy")):
        rows = [row["value"] for number in range(2) for part in kept.read("t", number) for row in part.to_pylist()]
        assert sorted(map(int, rows)) == list(range(40))
