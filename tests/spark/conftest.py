from tests.spark_fixtures import cluster, spark, store

__all__ = ["cluster", "spark", "store"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker("spark")
