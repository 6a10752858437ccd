"""The plugin for tests of programs that use a store, in a run of pytest of its own."""

from importlib.metadata import entry_points

import pytest

from tests.samples import samples

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester):
    """Runs pytest with the plugin, which it finds by itself where the package is installed as it is now."""
    found = entry_points(group="pytest11", name="pylog")
    options = [] if found else ["-p", "pyspark_log.pytest_plugin"]
    return lambda *more: pytester.runpytest_subprocess(*options, *more)


TEST = """
    import pytest

    pytestmark = pytest.mark.pylog_topic("all", 1)


    @pytest.mark.pylog_topic("orders", partitions=3, configs={"cleanup.policy": "compact"})
    @pytest.mark.pylog_topic("events")
    def test_topics(pylog_store):
        assert pylog_store.topics() == ["all", "events", "orders"]
        assert pylog_store.describe_topic("orders").partitions == 3
        assert pylog_store.describe_topic("orders").configs == {"cleanup.policy": "compact"}
        pylog_store.topic("all").append([{"value": "v"}])


    def test_each_test_has_its_own(pylog_store, tmp_path):
        assert pylog_store.topics() == ["all"]
        assert pylog_store.topic("all").read().to_table().num_rows == 0
        assert pylog_store.path.startswith(str(tmp_path))
"""


def test_a_store_with_the_topics_of_the_marks(pytester, run):
    pytester.makepyfile(TEST)
    run("--strict-markers").assert_outcomes(passed=2)


def test_the_sample_of_the_readme(pytester, run):
    (code,) = [one.code for one in samples() if one.name == "README.md: In your tests"]
    pytester.makepyfile(code)
    run().assert_outcomes(passed=1)


def test_what_is_wrong_with_a_mark_is_said(pytester, run):
    pytester.makepyfile("""
        import pytest

        @pytest.mark.pylog_topic("no/name")
        def test_it(pylog_store):
            pass
    """)
    found = run()
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["*InvalidTopicError*no/name*"])


def test_tests_without_a_store_do_not_load_the_engine(pytester, run):
    pytester.makepyfile("""
        import sys

        def test_it():
            assert "pyarrow" not in sys.modules
    """)
    run().assert_outcomes(passed=1)
