"""Runs the program of docs/concepts/transactions.md, to be killed.

`worker_to_kill.py STORE` prints "started" and "finished".
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/concepts/transactions.md"

if __name__ == "__main__":
    names = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], names)
    print("started", flush=True)
    names["shout"](sys.argv[1], "words", "loud", "shouters", batch_bytes=1)
    print("finished", flush=True)
