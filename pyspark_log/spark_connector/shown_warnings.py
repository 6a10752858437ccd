"""Shows the package's warnings where a user of Spark looks for them: on the standard error of the process.

Spark runs the connector in Python processes of its own, in which no code of the user's sets up logging. What they write
to their standard error stands in the driver's log or, for tasks, in the executor's.
"""

from __future__ import annotations

import logging
import sys


class _StandardError(logging.Handler):
    """Writes in the form of Spark's own log lines; where the root logger has a handler, that one shows the warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            print(self.format(record), file=sys.stderr, flush=True)


def show_warnings() -> None:
    """From now on this process shows them; called once."""
    logging.getLogger("pyspark_log").addHandler(_StandardError())
