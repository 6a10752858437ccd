"""The archives of Java's classes that `make archives` makes."""

from tests import java_archives, spark_home
from tests.kafka import kafka_tools


def test_each_is_made_once(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(kafka_tools, "FOLDER", tmp_path)
    monkeypatch.setattr(kafka_tools, "missing", lambda version: "")
    monkeypatch.setattr(kafka_tools, "archive_classes", made.append)
    monkeypatch.setattr(spark_home, "spark_home", lambda: None)
    java_archives.main()
    assert made == list(kafka_tools.JARS)
    for jars in kafka_tools.JARS.values():
        kafka_tools.archive(jars).touch()
    made.clear()
    java_archives.main()
    assert made == []
