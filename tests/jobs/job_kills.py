"""Kills processes of a job on a cluster at random, and starts the job again until it has ended well."""

import os
import random
import signal
import time
from collections import Counter

import pytest
from job_tools import Job

from tests.campaigns.processes import is_java, send, table
from tests.campaigns.queries.program import FILE_SYSTEM_CHECKPOINTS, JVM_OPTIONS
from tests.campaigns.queries.steps import PLANNED, STARTING, STEPS_OF_JOB, step_of_job

#: How many processes of a job are killed.
KILLS = int(os.environ.get("JOB_KILLS", "20"))
#: With how often each is chosen. A driver takes all the rest with it, and the next one takes long to start.
VICTIMS = {"driver": 1, "executor": 2, "Python worker": 2}
#: The same if drivers are also killed at steps of their publishes.
VICTIMS_OF_PUBLISHES = {"driver": 3, "executor": 1, "Python worker": 1}
#: Where a kill has hit a job of which no step is known.
ANY_STEP = "at any step"
#: How long to wait for what a job must come to, in seconds.
PATIENCE = 240
#: Starts quickly; queries of a few rows take longer to compile than to run.
QUICK = (
    "--conf", f"spark.driver.extraJavaOptions={JVM_OPTIONS}",
    "--conf", f"spark.executor.extraJavaOptions={JVM_OPTIONS}",
    "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "--conf", f"spark.sql.streaming.checkpointFileManagerClass={FILE_SYSTEM_CHECKPOINTS}",
)  # fmt: skip
#: What pytest gives such a test.
TIMEOUT = pytest.mark.timeout(max(1500, 75 * KILLS))
#: The marks of such a test.
MARKS = [
    pytest.mark.slow,
    pytest.mark.long,
    TIMEOUT,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has"),
]


def kill_at_random(cluster, log, arguments, feed, *, seed, within=1.5, options=(), publishes_to=None):
    """Runs a job until KILLS of its processes were killed, and then until it has ended well; prints what was killed.

    A run that nothing of was killed must end well.

    Args:
        cluster: where it runs.
        log: the file of what it prints.
        arguments: the name of the job, and its arguments.
        feed: called before each run, with the number of kills so far; gives the job something to do.
        seed: of the random moments and victims.
        within: a victim is killed at most this many seconds after it is there.
        options: more of spark-submit.
        publishes_to: a store and a topic, if the job publishes to it, and nothing else does: most drivers are then
            killed at the steps of a publish that were hit least, and which step each kill hit is printed as well.
    """
    kills, began, ended = _Kills(cluster, random.Random(seed), within, publishes_to), time.monotonic(), 0
    while (before := kills.total()) < KILLS:
        feed(before)
        with Job(log, cluster.master, *arguments, options=(*QUICK, *options)) as job:
            while job.is_running() and kills.total() < KILLS:
                if kills.strike(job) == "driver":
                    break
            else:
                well = job.wait() == 0
                assert well or kills.total() > before, log.read_text()[-3000:]
                ended += well
    feed(KILLS)
    with Job(log, cluster.master, *arguments, options=(*QUICK, *options)) as job:
        assert job.wait() == 0, log.read_text()[-3000:]
    print(f"{kills}runs that ended well beside them: {ended}; {time.monotonic() - began:.0f} s")


class _Kills:
    """Kills processes of jobs, and counts the kills by victim and step."""

    def __init__(self, cluster, chance, within, publishes_to):
        self._cluster, self._chance, self._within, self._publishes_to = cluster, chance, within, publishes_to
        self._victims = VICTIMS_OF_PUBLISHES if publishes_to else VICTIMS
        self._hits = Counter()

    def total(self):
        return self._hits.total()

    def __str__(self):
        """How many of each victim were killed, a line for each step that was hit."""
        steps = sorted({step for _, step in self._hits}, key=(*STEPS_OF_JOB, ANY_STEP).index)
        counts = {step: {victim: self._hits[victim, step] for victim in self._victims} for step in steps}
        return "".join(f"killed, {step}: {count}\n" for step, count in counts.items())

    def strike(self, job):
        """Kills one process, or all of a driver, at any moment of its life; returns which, None if there was none."""
        (victim,) = self._chance.choices([*self._victims], [*self._victims.values()])
        if victim == "driver" and self._publishes_to and self._chance.random() < 0.75:
            pids = self._wait_for_step(job)
        else:
            # Mostly not while Spark starts, which takes longest.
            sign = "Python worker" if self._chance.random() < 0.8 else victim
            wait_until(job, lambda: processes_of(self._cluster, job, sign), every=0.2)
            time.sleep(self._chance.uniform(0, self._within))
            pids = processes_of(self._cluster, job, victim)
        if victim != "driver":
            pids = [self._chance.choice(pids)] if pids else []
        if not pids or not job.is_running():
            return None
        send(pids, signal.SIGSTOP)
        self._hits[victim, self._step(job)] += 1
        send(pids, signal.SIGKILL)
        return victim

    def _step(self, job):
        """The step that the job is at, which is exact if its driver is stopped."""
        if not self._publishes_to:
            return ANY_STEP
        step = step_of_job(*self._publishes_to, job.began)
        if step == PLANNED and not processes_of(self._cluster, job, "Python worker"):
            return STARTING
        return step

    def _wait_for_step(self, job):
        """Returns the driver's processes when it is at one of the three steps that were hit least."""
        hits = Counter()
        for (_, step), count in self._hits.items():
            hits[step] += count
        aim = sorted(set(STEPS_OF_JOB) - {STARTING, PLANNED}, key=lambda step: (hits[step], step))[:3]
        pids, looked = [], 0
        while job.is_running() and (step := step_of_job(*self._publishes_to, job.began)) not in aim:
            # The steps that follow take milliseconds: there is no time to check then.
            if step == PLANNED:
                if time.monotonic() > looked + 1:
                    pids, looked = job.own(), time.monotonic()
                time.sleep(0.001)
        return pids


def processes_of(cluster, job, victim):
    """The driver's processes, or what it has started on the cluster."""
    if victim == "driver":
        return job.own()
    leaders = {worker.pid for worker in cluster.workers}
    children = [pid for pid, (_, leader) in table().items() if leader in leaders and pid not in leaders]
    return [pid for pid in children if is_java(pid) == (victim == "executor")]


def wait_until(job, seen, *, every=0.001):
    """Returns when something is seen; checks every `every` seconds; False if the job has ended before."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if seen():
            return True
        if not job.is_running():
            return False
        time.sleep(every)
    raise AssertionError(f"nothing was seen for {PATIENCE} s:\n{job.log.read_text()[-3000:]}")
