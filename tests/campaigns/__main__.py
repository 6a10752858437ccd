"""Runs a campaign: `python -m tests.campaigns SCENARIO --kills 200 --seed 1`; `--help` after a scenario says more."""

import importlib
import signal
import sys

from tests.campaigns.harness import main

SCENARIOS = {
    "queries": "queries.scenario", "server": "server.scenario", "transactions": "transactions",
    "cluster": "cluster.scenario", "groups": "groups", "objects": "objects",
    "tables": "tables", "real-time": "real_time",
}  # fmt: skip

if __name__ == "__main__":
    if not SCENARIOS.keys() & {*sys.argv[1:2]}:
        sys.exit(f"{__doc__}\nScenarios: {', '.join(SCENARIOS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    scenario = importlib.import_module(f"tests.campaigns.{SCENARIOS[sys.argv[1]]}").Campaign
    sys.exit(main(scenario, *sys.argv[1:]))
