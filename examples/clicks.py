"""Clicks of visitors of a shop, for the tutorial: written to the topic `clicks` by a producer.

    python examples/clicks.py STORE [--clicks 20000] [--devices]

A visitor's clicks come in visits of some minutes. Two in a hundred come late, by some minutes; one in two hundred
comes an hour late, which is too late for the sessions of click_sessions.py. The same clicks in each run, one call
after the other: a second run begins where the first has ended, by the number of records that are there.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime, timedelta

from pyspark_log import Producer, Store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAGES = ("home", "shoes", "coats", "cart", "paid")
VISITORS = 500


def click(number: int, *, has_device: bool) -> tuple[str, dict[str, str]]:
    """The click of a number: its visitor, and what happened."""
    draw = random.Random(number)
    # All visitors click for ten minutes, and not for the next forty.
    visit, within = divmod(number, 2_000)
    at = NOON + timedelta(minutes=50 * visit, milliseconds=300 * within)
    late = draw.random()
    if late < 0.005:
        at -= timedelta(hours=1)
    elif late < 0.025:
        at -= timedelta(minutes=draw.randint(1, 5))
    event = {"at": at.isoformat(), "page": draw.choice(PAGES)}
    if has_device:
        event["device"] = draw.choice(("phone", "desk"))
    return f"visitor-{draw.randrange(VISITORS)}", event


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="a folder, or a URL as s3://bucket/prefix")
    parser.add_argument("--clicks", type=int, default=20_000, help="how many (default: %(default)s)")
    parser.add_argument("--devices", action="store_true", help="with a field that earlier clicks do not have")
    arguments = parser.parse_args()
    with Store.open(arguments.store) as store:
        done = sum(store.topic("clicks").latest_offsets().values())
        with Producer(store) as producer:
            for number in range(done, done + arguments.clicks):
                visitor, event = click(number, has_device=arguments.devices)
                producer.send("clicks", key=visitor, value=json.dumps(event))
    print(f"{arguments.clicks:,} clicks; the topic has {done + arguments.clicks:,}")


if __name__ == "__main__":
    main()
