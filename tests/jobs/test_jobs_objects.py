"""The jobs with a store in an object store: what works there as with folders, and what is refused."""

import json

import pytest
from click.testing import CliRunner
from job_tools import committed, files_in, fill, rows_in, rows_of

from pyspark_log import Store
from pyspark_log.cli.main import main as pylog
from pyspark_log.jobs import bulk_load, compact, export_files, import_files, retention, verify
from tests.store_tools import observed


@pytest.fixture
def url(object_url):
    """An empty store in the object store."""
    return Store.create(object_url).path


@pytest.fixture
def objects(url):
    """The same, open."""
    return Store.open(url)


@pytest.mark.parametrize(
    ("job", "arguments", "group"),
    [
        (bulk_load, [], "bulk-load"),
        pytest.param(export_files, ["--format", "parquet"], "export-files", marks=pytest.mark.slow),
    ],
)
def test_records_to_files(spark, objects, tmp_path, capsys, job, arguments, group):
    call = [objects.path, str(tmp_path / "lake"), "--topics", "a", "--json", *arguments]
    for more in (100, 50, 0):
        if more:
            fill(objects, "a", 2, more)
        assert job.main(call) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 2 * more
    assert rows_in(tmp_path / "lake") == rows_of(objects, "a")
    assert committed(objects, group) == {"a-0": 150, "a-1": 150}
    assert len(files_in(tmp_path / "lake")) == 4


@pytest.mark.slow
def test_two_runs_into_two_folders(spark, objects, tmp_path, capsys):
    """The commit of one is refused: it does not count as loaded twice."""
    fill(objects, "a", 1, 10)
    calls, seen = [[objects.path, str(tmp_path / name), "--topics", "a"] for name in ("lake", "other")], []

    def another(change):
        if (
            change.kind == "write"
            and change.path.startswith(f"{tmp_path}/lake/_pylog")
            and change.path.endswith(".tmp")
        ):
            seen.append(None)
            if len(seen) == 2:  # The plan with the files that its tasks have written.
                seen.append(bulk_load.main(calls[1]))

    with observed(another):
        assert bulk_load.main(calls[0]) == 1
    assert seen == [None, None, 0]
    assert "PYLOG_OFFSET_CONFLICT" in capsys.readouterr().err
    assert rows_in(tmp_path / "other") == rows_of(objects, "a")


@pytest.mark.slow
def test_import_files(spark, objects, tmp_path, capsys):
    (tmp_path / "landing").mkdir()
    call = [objects.path, str(tmp_path / "landing"), "--to", "t", "--format", "json", "--key", "id", "--json"]
    for number in range(2):
        lines = [json.dumps({"id": f"{number}-{line}", "n": line}) for line in range(30)]
        (tmp_path / f"landing/{number}.json").write_text("\n".join(lines) + "\n")
        assert import_files.main(call) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 30
    assert import_files.main(call) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 0
    keys = [key for part in objects.read("t", 0) for key in part["key"].to_pylist()]
    assert sorted(keys) == sorted(b"%d-%d" % (number, line) for number in range(2) for line in range(30))


@pytest.mark.slow
def test_a_failed_import_leaves_nothing_staged(spark, objects, tmp_path, capsys):
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/0.json").write_text('{"id": 1}\n')
    (tmp_path / "landing/1.json").write_text("{\n")
    call = [objects.path, str(tmp_path / "landing"), "--to", "t", "--format", "json"]
    assert import_files.main(call) == 1
    assert "1.json" in capsys.readouterr().err
    assert list(objects.log.objects.list("data")) == []
    assert objects.latest_offset("t", 0) == 0


@pytest.mark.slow
def test_verify(spark, objects, capsys):
    fill(objects, "a", 2, 20)
    fill(objects, "b", 1, 20)
    name = "log/00000000000000000001"
    data = bytes(objects.log.objects.get(name).data)
    objects.log.objects.put(name, data[:-1] + bytes([data[-1] ^ 1]))
    for topic in ([], ["b"]):
        assert verify.main([objects.path, *topic, "--json"]) == (0 if topic else 1)
        found = json.loads(capsys.readouterr().out)
        options = [f"--topic={one}" for one in topic]
        command = CliRunner().invoke(pylog, ["--store", objects.path, "verify", "--json", *options])
        assert found | {"seconds": 0} == json.loads(command.stdout) | {"seconds": 0}
        assert [one["file"] for one in found["findings"]] == ([] if topic else [name])


@pytest.mark.parametrize(("job", "instead"), [(compact, "`pylog compact`"), (retention, "`pylog clean`")])
def test_what_needs_no_job(url, capsys, job, instead):
    assert job.main([url]) == 2
    assert f"{url} is in an object store: use {instead}" in capsys.readouterr().err
