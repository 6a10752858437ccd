"""Real servers of objects: one that keeps a store, and one on which no store may be created."""

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.errors import ObjectStoreError
from pyspark_log.storage.objects import Objects
from tests.object_server import Versitygw
from tests.store_tools import rows, values

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path, request, monkeypatch):
    found = Versitygw(tmp_path, request.param)
    found.start()
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    yield found
    found.kill()


@pytest.mark.parametrize("server", ["1.8.0"], indirect=True)
def test_a_server_that_is_right(server):
    url = f"s3://{server.bucket}/store"
    result = CliRunner().invoke(main, ["doctor", url])
    assert result.exit_code == 0, result.output
    store = Store.create(url)
    store.create_topic("t", 1)
    store.append("t", rows(b"a"))
    server.kill()
    server.start()
    assert values(Store.open(url)) == [b"a"]


@pytest.mark.parametrize("server", ["1.8.0"], indirect=True)
def test_an_object_whose_attributes_alone_are_there_can_be_created(server):
    objects = Objects(f"s3://{server.bucket}")
    assert objects.create("a", b"1")
    server.kill()
    (server.folder / "objects/bucket/a").unlink()
    server.start()
    assert objects.create("a", b"2")
    assert bytes(objects.get("a").data) == b"2"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("server", ["1.7.0"], indirect=True)
def test_a_server_whose_races_have_several_winners(server):
    url = f"s3://{server.bucket}/store"
    result = CliRunner().invoke(main, ["doctor", url])
    assert result.exit_code == 1
    assert "more than one winner" in result.output
    with pytest.raises(ObjectStoreError, match="no store can be kept here"):
        Store.create(url)
