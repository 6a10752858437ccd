"""Has each Python that starts here note what it runs, if asked to: for the map of what the tests cover.

Processes that tests start have as context the file of the test that runs then (noted.py).
"""

import os


class _Context:
    def configure(self, config):
        now = os.environ.get("MUTANTS_NOW", "")
        if os.path.exists(now):
            with open(now, encoding="utf-8") as file:
                config.set_option("run:context", file.read())


def coverage_init(reg, options):
    reg.add_configurer(_Context())


if "COVERAGE_PROCESS_START" in os.environ:
    import coverage

    coverage.process_startup()
