"""Where a query's checkpoint is, and what distinguishes a planned micro-batch from another."""

import pytest

from pyspark_log.spark_connector.writing.query_run import location_of, plan_of, same_location


@pytest.mark.parametrize(
    "spelling", ["/a/b", "/a/b/", "/a//b", "file:/a/b", "file:///a/b/", "/a/c/../b", "file:/a/./b"]
)
def test_one_checkpoint_in_many_spellings(spelling):
    assert same_location(spelling) == "/a/b"


def test_other_file_systems_and_none_at_all():
    assert same_location("hdfs://name/a/b/") == "hdfs://name/a/b"
    assert same_location("") == ""


def test_spark_s_rule_for_the_location():
    assert location_of("file:/own", "/session", "name") == "/own"
    assert location_of("", "/session/", "name") == "/session/name"
    assert location_of("", "hdfs://host/session", "name") == "hdfs://host/session/name"
    # A folder of a random name under it, or for this run only.
    assert location_of("", "/session", "") == location_of("", "", "name") == ""


def test_a_plan_is_what_spark_has_written_whatever_the_place(tmp_path):
    for name, offsets in (("a", "v1 one"), ("b", "v1 other"), ("copy of a", "v1 one")):
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "offsets/7").write_text(offsets)
    plans = {name: plan_of(str(tmp_path / name), 7) for name in ("a", "b", "copy of a")}
    assert plans["a"] == plans["copy of a"] != plans["b"]


def test_where_the_plan_cannot_be_read_its_place_counts(tmp_path):
    assert plan_of(str(tmp_path), 7) == f"at {tmp_path}"
    assert plan_of("hdfs://host/a", 7) == "at hdfs://host/a"
    assert plan_of("", 7) == ""
