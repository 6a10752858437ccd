"""The bounds of docs/reference/limits.md: ten times as much to do, and no more memory for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import work

from pyspark_log import Store

# Bytes of records. Some tens of MB are taken for as long as there is enough to do.
SMALL, LARGE = 30_000_000, 300_000_000
MIB = 1024
# How much more the large amount may take (KiB).
SLACK = 56 * MIB
#: What is measured (see work.py): the most that it may take, in KiB, beside what an open store takes.
BOUNDS = {
    "read": 40 * MIB,
    "spark_task": 40 * MIB,
    "append": 48 * MIB,
    "publish_large": 128 * MIB,
    "verify_all": 128 * MIB,
    "read_tiny_batches": 40 * MIB,
    "consume_all": 48 * MIB,
    "dump_all": 32 * MIB,
    "look_up_times": 32 * MIB,
    "append_tiny_batches": 32 * MIB,
    "stage": 128 * MIB,
    "publish_copied": 128 * MIB,
    "publish_large_batches": 160 * MIB,
    "publish_with_the_time_of_append": 160 * MIB,
    "publish_often": 32 * MIB,
    "repair_all": 96 * MIB,
    "retention": 32 * MIB,
    "compact_all": 32 * MIB,
    "recover": 32 * MIB,
    "commit_offsets": 48 * MIB,
}
# Here the amount is that of topics or partitions, each of which has a share of the memory until that is used up.
WIDE_BOUNDS = {
    "stage_for_many_topics": 160 * MIB,
    "stage_for_many_partitions": 160 * MIB,
    "stage_one_partition_after_another": 176 * MIB,
}


def measured(name: str, folder: Path, amount: int) -> int:
    """Does it in a process of its own; its peak in KiB."""
    folder.mkdir(exist_ok=True)
    result = subprocess.run(
        [sys.executable, work.__file__, name, str(folder), str(amount)], check=True, capture_output=True, text=True
    )
    return int(result.stdout or 0)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Stores with the two amounts of records; made with the first test that needs them."""
    stores = {}

    def of(amount: int) -> Path:
        if amount not in stores:
            stores[amount] = tmp_path_factory.mktemp("filled")
            measured("fill", stores[amount], amount)
        return stores[amount]

    yield of
    for folder in stores.values():
        shutil.rmtree(folder)


CHANGING = {"retention", "compact_all", "recover", "repair_all"}
READING = {
    "read", "read_tiny_batches", "spark_task", "consume_all", "dump_all", "look_up_times", "verify_all", *CHANGING,
}  # fmt: skip


def peak(name: str, amount: int, filled, tmp_path: Path) -> int:
    folder = tmp_path / str(amount)
    if name in CHANGING:
        shutil.copytree(filled(amount), folder)
    elif name in READING:
        folder = filled(amount)
    try:
        return measured(name, folder, amount)
    finally:
        if name not in READING or name in CHANGING:
            shutil.rmtree(folder)


def check(name: str, bound: int, filled, tmp_path: Path) -> None:
    small, large = (peak(name, amount, filled, tmp_path) for amount in (SMALL, LARGE))
    assert large <= bound
    assert large - small <= SLACK or name in WIDE_BOUNDS
    assert bound * 1024 * 1.5 < LARGE, "the bound says something only if there is more to do"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("name", [*BOUNDS, *WIDE_BOUNDS])
def test_memory_does_not_grow_with_the_amount(name, filled, tmp_path):
    check(name, {**BOUNDS, **WIDE_BOUNDS}[name], filled, tmp_path)


@pytest.mark.parametrize("name", work.WORK)
def test_what_is_measured_works(name, tmp_path):
    """The test above is run seldom; here is just enough for each to have something to do."""
    amount = 13_000_000
    work.fill(tmp_path, amount if name in work.NEED_RECORDS else 0)
    with Store.open(tmp_path / "store") as store:
        work.WORK[name](store, tmp_path, amount)
