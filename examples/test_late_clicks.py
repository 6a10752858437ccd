"""A test of click_sessions.py for the tutorial: late clicks, without Kafka and without containers.

    python -m pytest examples/test_late_clicks.py

pytest.ini names our plugin here.
"""

from __future__ import annotations

import json
from pathlib import Path

from click_sessions import sessions
from spark_session import start_spark

from pyspark_log import Store


def test_a_late_click_counts(pylog_store: Store, tmp_path: Path) -> None:
    pylog_store.create_topic("clicks", 1, {"retention.ms": "-1"})

    def clicked(*times: str) -> None:
        rows = [
            {"key": "anna", "value": json.dumps({"at": f"2026-01-01T{time}:00Z", "page": "home"})} for time in times
        ]
        pylog_store.topic("clicks").append(rows)
        query = sessions(start_spark("test"), pylog_store.path, f"{tmp_path}/checkpoint", to_the_end=True)
        query.awaitTermination()

    clicked("12:00", "12:05")
    clicked("12:02")  # late, and within the watermark
    clicked("14:00")
    clicked("16:00")
    found = pylog_store.topic("sessions").read().to_table()["value"].to_pylist()
    assert [json.loads(row)["clicks"] for row in found] == [3, 1]
