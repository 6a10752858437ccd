"""The tables of benchmarks: printed, and put into the pages of benchmarks/results with `--document`."""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Arguments of a benchmark, with those that all of them have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--document", action="store_true", help="put the tables into results/")
    made.add_argument("--folder", help="where to write; on the disk that is to be measured")
    made.add_argument("--rounds", type=int, default=7, help="how many rounds the medians are of")
    return made


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios that two ways have within each round."""
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def show(name: str, header: Sequence[str], rows: Sequence[Sequence[object]], *, document: bool) -> None:
    """Prints a table.

    Args:
        name: of the table; with `document` it replaces what is between `<!-- NAME -->` and `<!-- end -->` on the page
            that has these.
        header, rows: its cells; the first column is text, the others are numbers.
        document: whether to do that.
    """
    lines = [" | ".join(["", *header, ""]).strip(), " | ".join(["", "---", *["---:"] * (len(header) - 1), ""]).strip()]
    lines += [" | ".join(["", *map(str, row), ""]).strip() for row in rows]
    text = "\n".join(lines)
    print(f"{name}\n{text}\n", flush=True)
    if document:
        block = re.compile(rf"(<!-- {re.escape(name)} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
        for path in RESULTS.glob("*.md"):
            content, found = block.subn(lambda match: match[1] + text + match[2], path.read_text())
            if found:
                path.write_text(content)
                return
        raise SystemExit(f"no page in {RESULTS} has a table named {name!r}")
