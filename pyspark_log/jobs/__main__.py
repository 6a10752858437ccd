"""Prints the folder of the jobs: `python -m pyspark_log.jobs`. `pylog jobs list` has their names."""

from __future__ import annotations

import os

print(os.path.dirname(os.path.abspath(__file__)))
