"""Kills processes of a job on a cluster at random, and starts the job again until it has ended well."""

import os
import random
import signal
import time

import pytest
from job_tools import Job

from tests.campaign.processes import is_java, send, table
from tests.campaign.queries import FILE_SYSTEM_CHECKPOINTS, JVM_OPTIONS

#: How many processes of a job are killed.
KILLS = 20
#: With how often each is chosen. A driver takes all the rest with it, and the next one takes long to start.
VICTIMS = {"driver": 1, "executor": 2, "Python worker": 2}
#: How long to wait for what a job must come to, in seconds.
PATIENCE = 240
#: Starts quickly; queries of a few rows take longer to compile than to run.
QUICK = (
    "--conf", f"spark.driver.extraJavaOptions={JVM_OPTIONS}",
    "--conf", f"spark.executor.extraJavaOptions={JVM_OPTIONS}",
    "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "--conf", f"spark.sql.streaming.checkpointFileManagerClass={FILE_SYSTEM_CHECKPOINTS}",
)  # fmt: skip
#: The marks of such a test.
MARKS = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has"),
]


def kill_at_random(cluster, log, arguments, feed, *, seed, within=1.5, options=()):
    """Runs a job until 20 of its processes were killed, and then until it has ended well; prints what was killed.

    A run that nothing of was killed must end well.

    Args:
        cluster: where it runs.
        log: the file of what it prints.
        arguments: the name of the job, and its arguments.
        feed: called before each run, with the number of kills so far; gives the job something to do.
        seed: of the random moments and victims.
        within: a victim is killed so many seconds, at most, after it is there.
        options: more of spark-submit.
    """
    chance, began = random.Random(seed), time.monotonic()
    killed, ended = dict.fromkeys(VICTIMS, 0), 0
    while (before := sum(killed.values())) < KILLS:
        feed(before)
        with Job(log, cluster.master, *arguments, options=(*QUICK, *options)) as job:
            while job.is_running() and sum(killed.values()) < KILLS:
                (victim,) = chance.choices([*VICTIMS], [*VICTIMS.values()])
                if _kill(cluster, job, victim, chance, within):
                    killed[victim] += 1
                    if victim == "driver":
                        break
            else:
                well = job.wait() == 0
                assert well or sum(killed.values()) > before, log.read_text()[-3000:]
                ended += well
    feed(KILLS)
    with Job(log, cluster.master, *arguments, options=(*QUICK, *options)) as job:
        assert job.wait() == 0, log.read_text()[-3000:]
    print(f"killed: {killed}; runs that ended well beside them: {ended}; {time.monotonic() - began:.0f} s")


def _kill(cluster, job, victim, chance, within):
    """Kills one process at any moment of its life; whether there was one."""
    # Mostly not while Spark starts, which takes longest.
    sign = "Python worker" if chance.random() < 0.8 else victim
    wait_until(job, lambda: processes_of(cluster, job, sign), every=0.2)
    time.sleep(chance.uniform(0, within))
    pids = processes_of(cluster, job, victim)
    if not pids or not job.is_running():
        return False
    send([chance.choice(pids)], signal.SIGKILL)
    return True


def processes_of(cluster, job, victim):
    """The driver's processes, or what it has started on the cluster."""
    if victim == "driver":
        return job.own()
    leaders = {worker.pid for worker in cluster.workers}
    children = [pid for pid, (_, leader) in table().items() if leader in leaders and pid not in leaders]
    return [pid for pid in children if is_java(pid) == (victim == "executor")]


def wait_until(job, seen, *, every=0.001):
    """Returns when something is seen, which is looked for every so many seconds; False if the job has ended before."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if seen():
            return True
        if not job.is_running():
            return False
        time.sleep(every)
    raise AssertionError(f"nothing was seen for {PATIENCE} s:\n{job.log.read_text()[-3000:]}")
