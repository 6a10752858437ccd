"""Kills streaming queries again and again, and compares what they wrote with what undisturbed ones write.

    python -m tests.campaign.run --kills 200 --seed 1 --report FILE

Two queries, a stateless one and one with state for each key, read a topic that a producer keeps appending to, and
write to topics of their own. Victims are the whole driver, its JVM, its Python process, one Python worker, an executor
(on a cluster); or a driver is stopped, followed by a successor, and woken (a zombie). All processes are stopped first,
so that the step that the kill hits is known for certain (steps.py); most kills are aimed at the steps that were hit
least. At last the queries finish, undisturbed ones run over the same source, and of every key the outputs must have
the same records in the same order.

Exit code 0: no difference, no damage, and every kill was made. Otherwise the folder of the store is kept.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.campaign.campaign import Campaign
from tests.campaign.cluster import Cluster
from tests.campaign.report import check, report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--rate", type=float, default=100, help="records a second that the producer appends")
    parser.add_argument("--report", type=Path, help="where the report goes; else it is only printed")
    parser.add_argument("--folder", type=Path, help="where to work, and what to keep; else a temporary folder")
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster of two workers, not in one JVM")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = options.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        master = "local[2,4]"
        if options.cluster:
            # Twice as many cores as a driver takes: a zombie keeps its own.
            cluster = Cluster(folder / "cluster", cores=2, memory="1200m")
            stack.callback(cluster.stop)
            master = cluster.master
        campaign = Campaign(options, master, folder, log)
        kills, records = campaign.run()
        campaign.tell(finishing=records)
        campaign.finish()
    faults = list(campaign.stuck)
    if kills < options.kills:
        faults.append(f"only {kills} of {options.kills} kills were made")
    faults += check(campaign.store, records)
    text = report(campaign, kills, records, faults)
    print(text)
    if options.report:
        options.report.write_text(text)
    if not faults and not options.folder:
        shutil.rmtree(folder)
    elif faults:
        print(f"kept: {folder}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
