"""The short form of the campaign: streaming queries that are killed write the same as ones that are left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

REPOSITORY = Path(__file__).parents[2]
KILLS = 4


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1400)
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the processes to kill in /proc, which Linux has")
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
def test_killed_queries_write_what_undisturbed_ones_write(tmp_path, capsys):
    campaign = subprocess.Popen(
        [sys.executable, "-m", "tests.campaign.run", "--kills", str(KILLS), "--folder", tmp_path / "campaign"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told, _ = campaign.communicate()
    finally:
        # It takes all drivers with it.
        campaign.terminate()
        campaign.wait()
    with capsys.disabled():
        print("\n" + told)
    assert campaign.returncode == 0, (tmp_path / "campaign/log").read_text()[-3000:]
    assert "no record lost" in told
