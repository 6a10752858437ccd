"""Blocks of code of pages of docs/, as programs; tests/samples.py has those that need nothing but a store."""

import re
import subprocess
import sys

from tests.paths import DOCS
from tests.server_tools import PATIENCE


def blocks(page, language):
    """Those of a page in a language, in order; the page with its room, as in `guides/server.md`."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [code for found, code in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL) if found == language]


def run_python(code):
    """Runs a block of Python; what it prints."""
    return _printed([sys.executable, "-c", code])


def run_shell(code, folder):
    """Runs commands in a folder, `pylog` among them; what they print."""
    script = f'pylog() {{ "{sys.executable}" -m pyspark_log.cli.main "$@"; }}\n{code}'
    return _printed(["sh", "-ec", script], cwd=folder)


def _printed(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout
