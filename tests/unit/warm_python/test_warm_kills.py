"""Starts of `pylog-python` beside kills of its launchers, warm processes and children: each runs once."""

import collections
import os
import random
import signal
import subprocess
import threading

import pytest

from tests.seeds import new_seed

AT_ONCE = 4
# It says that it has run, and with what; the file is opened for appending, so no line is torn.
CODE = """
import os
line = f"{sys.argv[2]} {os.getpid()}\\n".encode()
file = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)
os.write(file, line)
print(sys.argv[2], flush=True)
"""
UNKNOWN = "pylog-python: the warm process was killed, so the exit code of this one is unknown\n"


class Starts:
    """Threads that start one process after the other, each with a number of its own."""

    def __init__(self, warm, ran, count):
        self.warm, self.ran, self.ends, self.killed = warm, ran, {}, set()
        self.running = {}
        self._numbers = iter(range(count))
        self._lock = threading.Lock()

    def work(self):
        while (number := self._next()) is not None:
            process = self.warm.start(CODE, str(number), str(self.ran), stderr=subprocess.PIPE)
            with self._lock:
                self.running[number] = process
            output, errors = process.communicate()
            with self._lock:
                del self.running[number]
            self.ends[number] = (process.returncode, output, errors)

    def _next(self):
        with self._lock:
            return next(self._numbers, None)

    def kill_one(self, chance):
        """Ends a launcher, a child or the warm process."""
        with self._lock:
            kind = chance.choice(("launcher", "child", "warm"))
            if kind == "launcher" and self.running:
                number = chance.choice(sorted(self.running))
                self.killed.add(number)
                self.running[number].kill()
                return kind
        try:
            if kind == "warm":
                self.warm.kill_server()
                self.warm.forget_last_start()
            else:
                os.kill(int(chance.choice(self.warm.children())), signal.SIGKILL)
        except (IndexError, ProcessLookupError, FileNotFoundError):
            return None  # None runs at this moment.
        return kind


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most_kills"), [(150, 12), pytest.param(1_000, 50, marks=pytest.mark.long)])
def test_each_start_runs_once_beside_kills(warm, tmp_path, count, most_kills):
    seed = new_seed()
    chance = random.Random(seed)
    ran = tmp_path / "ran"
    ran.touch()
    starts = Starts(warm, ran, count)
    threads = [threading.Thread(target=starts.work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    kills = collections.Counter()
    while any(thread.is_alive() for thread in threads):
        if len(starts.ends) >= sum(kills.values()) * count / (most_kills + 1):
            kills.update(filter(None, [starts.kill_one(chance)]))
        threads[0].join(0.01)
    for thread in threads:
        thread.join()
    times = collections.Counter(int(line.split()[0]) for line in ran.read_text().splitlines())
    assert max(times.values()) == 1, f"seed {seed}"
    for number, end in starts.ends.items():
        if number in starts.killed:
            continue
        complete = times[number] == 1 and end[1] == f"{number}\n"
        assert (complete and end[0::2] in ((0, ""), (1, UNKNOWN))) or end[0] == -signal.SIGKILL, (seed, number, end)
    by_kill = [number for number, end in starts.ends.items() if end[0] == -signal.SIGKILL]
    assert len(by_kill) <= kills["launcher"] + kills["child"], (seed, kills)
    assert sum(kills.values()) >= most_kills
    assert min(kills.values()) >= most_kills // 10, kills
