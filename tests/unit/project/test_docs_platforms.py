"""docs/guides/platforms.md: its manifest fits the files of conf/kubernetes, its DAG is one for Airflow."""

import pytest

from tests.paths import ROOT

CONF = ROOT / "conf/kubernetes"


def test_the_manifest():
    """What the operator's own schema says was checked by hand."""
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load((ROOT / "conf/spark-operator/spark-application.yaml").read_text(encoding="utf-8"))["spec"]
    [volume] = spec["volumes"]
    claim = yaml.safe_load((CONF / "store.yaml").read_text(encoding="utf-8"))["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    for role in ("driver", "executor"):
        assert [one["name"] for one in spec[role]["volumeMounts"]] == [volume["name"]]
    image = (CONF / "Dockerfile").read_text(encoding="utf-8")
    assert f"FROM apache/spark:{spec['sparkVersion']}-" in image


def test_the_dag():
    path = ROOT / "examples/airflow/flights_dag.py"
    code = compile(path.read_text(encoding="utf-8"), path, "exec")
    pytest.importorskip("airflow.providers.apache.spark", reason="needs Airflow and its provider for Spark")
    names = {}
    exec(code, names)
    [task] = names["flights"]().tasks
    assert task.retries == 3
