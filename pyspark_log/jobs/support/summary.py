"""What a job says at its end."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_log.cli.support import human_size, print_json


def show_summary(facts: Mapping[str, int | float | str], *, as_json: bool) -> None:
    """Prints figures by their names, a line each, or as one JSON document; `bytes` are bytes, `seconds` seconds."""
    if as_json:
        print_json({name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()})
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {_shown(name, value)}")


def _shown(name: str, value: float | str) -> str:
    if name == "bytes":
        return human_size(int(value))
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value
