"""`pylog-python`: what is given to Spark as its Python, and the process with Spark's modules that it has forked."""

from __future__ import annotations

import os
import sys


def use_warm_python() -> None:
    """Has the sessions of Spark that this process begins from now on start their Python by `pylog-python`.

    That is the one beside this Python, or this Python if there is none. PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON stay
    as they are if they are set.
    """
    launcher = os.path.join(os.path.dirname(sys.executable), "pylog-python")
    python = launcher if os.path.exists(launcher) else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
