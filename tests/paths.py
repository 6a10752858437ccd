"""Where the sources are, and the bytes that Kafka wrote."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: The pages of all rooms.
PAGES = sorted(DOCS.rglob("*.md"))
#: What benchmarks have measured, and what tests have covered.
RESULTS = [
    *sorted((ROOT / "benchmarks/results").glob("*.md")),
    *(ROOT / "tests" / name for name in ("RUNS.md", "fixtures/HEXDUMPS.md", "model/CASES.md", "spark/KAFKA_CASES.md")),
]
GOLDEN = ROOT / "tests" / "golden"
#: What Kafka's own classes wrote: batches, and a folder of logs.
KAFKA_JAVA = GOLDEN / "kafka-java"
LOGDIR = KAFKA_JAVA / "logdir"
