"""What all campaigns have: options, processes to kill, the faults that a seed draws, what is found, the report."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.campaigns.processes import send, session

#: How long a process may take for what was not answered before others were killed, in seconds.
PATIENCE = 300
_MOST_SHOWN = 20


class Campaign:
    """One run. A scenario is a subclass: it begins, is struck again and again, finishes, and is checked.

    Attributes:
        kills: how many there are, if nothing else is said.
        tend_every: after so many kills `tend` is called.
        folder: where all is.
        options: those of the command line.
        random: what the seed draws.
        running: processes by name, each in a session with all that it has started.
        counts: what was done, and how often.
        found: what is wrong.
    """

    kills, tend_every = 200, 10

    def __init__(self, folder, **options):
        """`options` are those of the command line; others have their defaults."""
        known = parser(type(self)).parse_args([])
        assert vars(known).keys() >= options.keys(), options
        self.folder, self.options = Path(folder), argparse.Namespace(**(vars(known) | options))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(self.options.seed)
        self.running, self.counts, self.found, self.begun = {}, Counter(), [], time.monotonic()
        self.prepare()

    # ---- what a scenario says

    @classmethod
    def arguments(cls, options):
        """Adds options to an argparse."""

    def prepare(self):
        """Makes what is there before anything is started."""

    def begin(self):
        """Starts all."""

    def count(self):
        """How many strikes there are."""
        return self.options.kills

    def pause(self):
        """Lets all work for a while."""
        time.sleep(self.random.uniform(0.2, 1.5))
        self.look()

    def look(self):
        """Sees to what happens beside the strikes."""

    def strike(self):
        """Kills or disturbs something; gives what that was, or None if there is nothing left to strike."""
        raise NotImplementedError

    def tend(self):
        """What is done now and then."""

    def finish(self):
        """Lets all come to an end undisturbed."""

    def check(self):
        """Gives what is wrong."""
        return []

    def figures(self):
        """Lines of the report."""
        return []

    def keep(self):
        """Called before `end` if something is wrong: saves what would be gone."""

    def end(self):
        """Ends what still runs."""

    # ---- the run

    def run(self):
        """Runs all of it; gives what is wrong."""
        try:
            self.begin()
            self.attack()
            self.finish()
            self.found += self.check()
        except Exception:  # noqa: BLE001  (whatever fails is a fault, and does not hide what was found before)
            self.found.append(traceback.format_exc())
        finally:
            if self.found or sys.exc_info()[0]:
                self.keep()
            for name in list(self.running):
                self.kill(name)
            self.end()
        return self.found

    def attack(self):
        """Strikes one time after the other."""
        for number in range(1, self.count() + 1):
            self.pause()
            what = self.strike()
            if what is None:
                return
            self.counts[what] += 1
            if number % self.tend_every == 0:
                self.tend()
                self.say(f"{number} of {self.count()}")

    def say(self, text):
        """Prints a line at once."""
        print(f"{time.monotonic() - self.begun:6.1f} {text}", flush=True)

    def wait(self, condition, seconds=PATIENCE, *, every=0.2):
        """Waits until something is so, and looks meanwhile; False: it is not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.look()
            time.sleep(every)
        return True

    # ---- processes

    def launch(self, name, words, output=None):
        """Starts a process; what it prints goes to a file of the folder, its errors to `NAME.log`."""
        log = f"{name}.log"
        with (self.folder / (output or log)).open("ab") as out, (self.folder / log).open("ab") as errors:
            words = [*map(str, words)]
            self.running[name] = subprocess.Popen(words, stdout=out, stderr=errors, start_new_session=True)

    def launch_module(self, name, module, *words, output=None):
        """Starts a module of this package as a process."""
        self.launch(name, [sys.executable, "-m", f"tests.campaigns.{module}", *words], output)

    def log(self, name):
        """What processes of a name have said."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, name):
        """Kills a process with all that it has started."""
        process = self.running.pop(name)
        process.kill()
        while left := session(process.pid):
            send(left, signal.SIGKILL)
            process.poll()
        process.wait()

    def terminate(self, *names, sign=signal.SIGTERM):
        """Ends processes in order; an exit code of an error is a fault.

        That the signal itself has ended one is none: so ends what has not begun yet, and Java says so always.
        """
        for name in names:
            self.running[name].send_signal(sign)
        for name in names:
            code = self.running.pop(name).wait(PATIENCE)
            if code not in (0, -sign, 128 + sign):
                self.found.append(f"{name} has ended with {code}: {self.log(name)[-1500:]}")


def parser(scenario, name=""):
    """The command line of a scenario."""
    text = sys.modules[scenario.__module__].__doc__
    found = argparse.ArgumentParser(
        f"python -m tests.campaigns {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--kills", type=int, default=scenario.kills, help="or other faults; %(default)s")
    found.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    found.add_argument("--folder", type=Path, help="where to work, and what to keep; else a temporary folder")
    found.add_argument("--keep", action="store_true", help="keep the temporary folder, also if nothing is wrong")
    scenario.arguments(found)
    return found


def main(scenario, name, *words):
    """Runs a scenario as the command line says, and reports. Gives 1 if something is wrong, and keeps the folder."""
    options = parser(scenario, name).parse_args(words)
    folder = options.folder or Path(tempfile.mkdtemp(prefix=f"{name}-campaign-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    campaign = scenario(**vars(options) | {"folder": folder})
    found = campaign.run()
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(campaign.counts.items()))
    lines = [f"{time.monotonic() - campaign.begun:.0f} s, seed {options.seed}: {done}", *campaign.figures()]
    lines += [f"FAULT: {one}" for one in found[:_MOST_SHOWN]]
    lines.append(f"{len(found)} faults" if found else "nothing is lost, doubled or out of order, or else wrong")
    print("\n".join(lines))
    if found:
        again = "" if "--seed" in words else f" --seed {options.seed}"
        print(f"repeat: {name} {' '.join(words)}{again}; kept: {folder}")
    elif not (options.keep or options.folder):
        shutil.rmtree(folder)
    return 1 if found else 0
