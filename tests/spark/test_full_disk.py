"""Spark writes to a disk that is full: an error that says so, and everything once there is room."""

import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def why_not(folder):
    """Why this machine does not let us mount a disk; "" if it does."""
    try:
        attempt = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "there is no unshare(1)"
    return "" if attempt.returncode == 0 else f"no small disk can be mounted here: {attempt.stderr.strip()}"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
def test_writes_to_a_full_disk_are_made_good_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if reason := why_not(disk):
        pytest.skip(reason)
    script = Path(__file__).with_name("full_disk.py")
    done = subprocess.run(
        [*NAMESPACE, sys.executable, script, disk], capture_output=True, text=True, check=False, timeout=800
    )
    assert done.stdout.endswith("all is there\n"), done.stdout[-1000:] + done.stderr[-3000:]
