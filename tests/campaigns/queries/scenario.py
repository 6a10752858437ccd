"""Kills streaming queries again and again, and compares what they wrote with what undisturbed ones write.

    python -m tests.campaigns queries --kills 200 --seed 1 --report FILE

Two queries, a stateless one and one with state for each key, read a topic that a producer keeps appending to, and
write to topics of their own. Victims are the whole driver, its JVM, its Python process, one Python worker, an executor
(on a cluster); or a driver is stopped, followed by a successor, and woken (a zombie). All processes are stopped first,
so that the step that the kill hits is known for certain (steps.py); most kills are aimed at the steps that were hit
least. At last the queries finish, undisturbed ones run over the same source, and of every key the outputs must have
the same records in the same order.
"""

import collections
import json
import signal
import time
from pathlib import Path

from pyspark_log import Store
from tests.campaigns import harness
from tests.campaigns.processes import Driver, holds_open, send
from tests.campaigns.queries.compare import differences, sequences
from tests.campaigns.queries.steps import BETWEEN, PLANNED, REPLAY, STAGED, STARTING, STEPS, last_decision, step_of
from tests.campaigns.spark_cluster import Cluster
from tests.store_tools import damages

QUERIES = ("stateless", "chained")
VICTIMS = {"driver": 32, "JVM": 10, "Python driver": 6, "Python worker": 40, "zombie": 12}
ON_CLUSTER = {"driver": 25, "JVM": 10, "Python worker": 15, "zombie": 15, "executor": 35}

ANY_MOMENT = ("any moment",)
ANY_MOMENT_OF_WORK = ("any moment after a publish",)

#: How long to lie in wait for a step, and how long a query may take to publish again after a kill, in seconds.
WAIT_FOR_STEP = 10
WAIT_FOR_PROGRESS = 300
#: A successor of a stopped driver may have to wait for a lock that this one holds: then it is woken.
WAIT_FOR_SUCCESSOR = 30


class Campaign(harness.Campaign):
    """Two queries under kills."""

    @classmethod
    def arguments(cls, options):
        options.add_argument("--rate", type=float, default=100, help="records a second that the producer appends")
        options.add_argument("--report", type=Path, help="where the table of hits goes, too")
        options.add_argument("--cluster", action="store_true", help="on a cluster of two workers, not in one JVM")

    def prepare(self):
        self.checkpoints = self.folder / "checkpoints"
        self.store = Store.create(self.folder / "store")
        self.store.create_topic("events", 3)
        for suffix in ("", "-undisturbed", "-first"):
            for name in QUERIES:
                # Small segments, so that some publishes roll.
                self.store.create_topic(name + suffix, 6, {"segment.bytes": "500000"})
        self.master, self.spark, self.driver = "local[2,4]", None, None
        self.output = (self.folder / "log").open("w")
        self.drivers = []  # all that there were
        self.dying = []  # drivers of which something may be left, and when it was hit
        self.hits = collections.Counter()  # (victim, step of the query aimed at)
        self.beside = collections.Counter()  # step of the other query, where it was hit too
        self.zombies = collections.Counter()
        self.left = self.records = 0  # drivers of which something was left for long; and what is in the source
        self.jvm_options = ""

    def begin(self):
        if self.options.cluster:
            # Twice as many cores as a driver takes: a zombie keeps its own.
            self.spark = Cluster(self.folder / "cluster", cores=2, memory="1200m")
            self.master = self.spark.master
        words = self.store.path, self.options.rate, self.options.seed
        self.launch_module("producer", "queries.producer", *words, output="records")
        if self.options.kills > 20:
            self.warm_up()
        self.start()

    def attack(self):
        kills = tries = 0
        while kills < self.options.kills and tries < 2 * self.options.kills + 10:
            tries += 1
            self.bury()
            kills += self.hit(kills + 1)
        if kills < self.options.kills:
            self.found.append(f"only {kills} of {self.options.kills} kills were made")

    def finish(self):
        """Lets the killed queries and undisturbed ones go through all of the source."""
        self.terminate("producer")
        self.records = int((self.folder / "records").read_text())
        self.end_drivers()
        self.tell(finishing=self.records)
        for suffix, checkpoints in ("", self.checkpoints), ("-undisturbed", self.folder / "undisturbed"):
            self.once(suffix, checkpoints)

    def once(self, suffix, checkpoints):
        """Runs the queries, undisturbed, until they have done all that there is."""
        driver = Driver(self.arguments_of(suffix, checkpoints, "once"), self.output)
        try:
            if not driver.wait(3600) or not driver.said("finished"):
                self.found.append(f"the run {suffix or 'after the last kill'} did not finish: {driver.lines[-3:]}")
        finally:
            driver.kill()

    def end_drivers(self):
        """Kills all that is left of drivers."""
        for driver in self.drivers:
            if not driver.process.stdout.closed:  # it was killed, and all of it is gone
                driver.kill()

    def end(self):
        self.end_drivers()
        self.output.close()
        if self.spark is not None:
            self.spark.stop()

    # ---- drivers

    def start(self):
        self.driver = Driver(self.arguments_of("", self.checkpoints, "forever"), self.output)
        self.drivers.append(self.driver)

    def arguments_of(self, suffix, checkpoints, trigger):
        return self.store.path, checkpoints, suffix, self.master, trigger, self.jvm_options

    def warm_up(self):
        """Keeps the JVM's classes in an archive, which halves what it costs to start one."""
        archive = self.folder / "classes.jsa"
        self.jvm_options = f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable"
        self.once("-first", self.folder / "first")
        self.jvm_options = f"-XX:SharedArchiveFile={archive} -Xlog:disable"

    def since(self, driver, query):
        """When the query was last started in a driver; None if it was not yet."""
        return max(driver.said("started", query), default=None)

    def step(self, driver, query):
        return step_of(self.store, query, f"{self.checkpoints}/{query}", self.since(driver, query))

    def number(self, query):
        """The last number that the query has published, and its decision; (-1, -1) if there is none."""
        last = last_decision(self.store, f"{self.checkpoints}/{query}")
        return (-1, -1) if last is None else (last.number, last.offset)

    def wait_for_publish(self, query, seconds):
        """Waits until the query publishes something new; False if it does not."""
        before, deadline = self.number(query), time.monotonic() + seconds
        while self.number(query) == before:
            if time.monotonic() > deadline:
                return False
            self.bury()
            if not self.driver.is_running():
                # Replaced by a woken zombie's newer run: it is started again, as a supervisor does.
                self.driver.kill()
                self.start()
            time.sleep(0.02)
        return True

    def bury(self):
        """Checks drivers that lost a part: what is left of them must end by itself, and soon."""
        for driver, killed in list(self.dying):
            left = driver.pids()
            if not left:
                driver.kill()
                self.dying.remove((driver, killed))
            elif time.monotonic() > killed + 60:
                self.left += 1
                driver.kill()
                self.dying.remove((driver, killed))

    # ---- kills

    def hit(self, number):
        """Makes one kill; False if it could not be made."""
        query, aim = self.aim()
        if aim not in (ANY_MOMENT, (REPLAY,)) and not self.wait_for_publish(query, WAIT_FOR_PROGRESS):
            self.is_stuck(query)
            return False
        self.lie_in_wait(query, aim)
        driver = self.driver
        driver.freeze()
        steps = {name: self.step(driver, name) for name in QUERIES}
        numbers = [self.number(name)[0] for name in QUERIES]
        victim = self.victim()
        if not (driver.is_running() and getattr(self, "hit_" + victim.replace(" ", "_").lower())(query)):
            driver.thaw()
            return False
        self.hits[victim, steps[query]] += 1
        if victim not in ("Python worker", "executor"):
            self.beside.update(step for name, step in steps.items() if name != query)
        self.tell(kill=number, victim=victim, query=query, aimed=steps[query] in aim, steps=steps, numbers=numbers)
        return True

    def victim(self):
        victims = ON_CLUSTER if self.options.cluster else VICTIMS
        return self.random.choices(list(victims), victims.values())[0]

    def aim(self):
        """A query and where to strike: at any moment, at any at which it surely works, or at the steps hit least."""
        # What is decided and not in Spark's commit log comes again after a restart, and only then.
        due = [name for name in QUERIES if self.step(self.driver, name) == STARTING and self.is_published(name)]
        if due and self.random.random() < 0.4:
            return self.random.choice(due), (REPLAY,)
        query, way = self.random.choice(QUERIES), self.random.random()
        if way < 0.15:
            return query, ANY_MOMENT
        if way < 0.35:
            return query, ANY_MOMENT_OF_WORK
        # These are hit without aiming; the other query makes no files.
        without = {STARTING, BETWEEN, REPLAY} | ({STAGED} if query != "stateless" else set())
        hits = collections.Counter()
        for (_, step), count in self.hits.items():
            hits[step] += count
        return query, tuple(sorted(set(STEPS) - without, key=hits.__getitem__)[:3])

    def is_published(self, query):
        """Whether the micro-batch that the query is to repeat was published."""
        return step_of(self.store, query, f"{self.checkpoints}/{query}", time.time()) == REPLAY

    def lie_in_wait(self, query, aim):
        """Returns at the moment to strike."""
        driver = self.driver
        driver.look()
        if aim == ANY_MOMENT:
            time.sleep(self.random.uniform(0, 12))
        elif aim == ANY_MOMENT_OF_WORK:
            time.sleep(self.random.uniform(0, 2))
        elif aim == (REPLAY,):
            self.wait_for_step(query, aim, WAIT_FOR_PROGRESS)
            time.sleep(self.random.uniform(0, 6))
        else:
            self.wait_for_step(query, aim, WAIT_FOR_STEP)

    def wait_for_step(self, query, aim, seconds):
        now = looked = time.monotonic()
        deadline, before = now + seconds, self.number(query)
        while now < deadline and self.driver.is_running():
            step = self.step(self.driver, query)
            if step in aim:
                break
            if aim == (REPLAY,) and self.number(query) != before:
                break  # It was too short to be seen, and does not come again.
            now = time.monotonic()
            # The steps that follow take milliseconds: there is no time to sleep.
            if step in (STARTING, BETWEEN, PLANNED):
                if now > looked + 1:
                    self.driver.look()
                    looked = now
                time.sleep(0.001 if step == PLANNED else 0.01)

    def hit_driver(self, query):
        return self.hit_part(self.driver.own())

    def hit_jvm(self, query):
        return self.hit_part(self.driver.java())

    def hit_python_driver(self, query):
        return self.hit_part([self.driver.process.pid])

    def hit_part(self, pids):
        """The rest of the driver lives on for a while, beside its successor."""
        if not pids:
            return False
        send(pids, signal.SIGKILL)
        self.driver.thaw()
        self.dying.append((self.driver, time.monotonic()))
        self.start()
        return True

    def hit_python_worker(self, query):
        """A process that has a state file open, if there is one; the query or the task is started again by itself."""
        workers = self.driver.workers()
        writers = [pid for pid in workers if holds_open(pid, f"{self.store.path}/state")]
        return self.hit_one(writers if writers and self.random.random() < 0.7 else workers)

    def hit_executor(self, query):
        return self.hit_one(self.driver.executors())

    def hit_one(self, pids):
        if not pids:
            return False
        send([self.random.choice(pids)], signal.SIGKILL)
        self.driver.thaw()
        return True

    def hit_zombie(self, query):
        """It stays stopped until its successor has published something, then runs beside it for some seconds."""
        zombie = self.driver
        self.start()
        try:
            followed = self.wait_for_publish(query, WAIT_FOR_SUCCESSOR)
            self.zombies["woken when its successor had published" if followed else "woken before that"] += 1
            time.sleep(self.random.uniform(0, 1))
            seen = len(zombie.lines)
            zombie.thaw()
            deadline = time.monotonic() + self.random.uniform(2, 8)
            while zombie.is_running() and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            zombie.kill()
        words = {line.split()[0] for _, line in zombie.lines[seen:] if line}
        self.zombies["told that they were replaced" if "replaced" in words else "ended before they noticed"] += 1
        return True

    def is_stuck(self, query):
        """The driver makes no progress: noted as a failure; the campaign continues with another one."""
        self.found.append(f"{query} published nothing for {WAIT_FOR_PROGRESS} s after number {self.number(query)[0]}")
        self.tell(stuck=query, step=self.step(self.driver, query), lines=[line for _, line in self.driver.lines[-5:]])
        self.driver.kill()
        self.start()

    def tell(self, **facts):
        self.say(json.dumps(facts))

    # ---- what is found

    def check(self):
        """All that is wrong with the outputs."""
        found = []
        source = sequences(self.store, "events")
        if sum(len(sequence.numbers) for sequence in source.values()) != self.records:
            found.append("the source has not what the producer appended")
        for name in QUERIES:
            wanted = sequences(self.store, f"{name}-undisturbed")
            if {key: one.numbers for key, one in wanted.items()} != {key: one.numbers for key, one in source.items()}:
                found.append(f"{name}: the undisturbed run did not process all of the source")
            found += [f"{name}: {line}" for line in differences(wanted, sequences(self.store, name))]
        return found + [f"pylog verify: {damage}" for damage in damages(self.store.path)]

    def figures(self):
        hits = self.hits
        victims = [victim for victim in (*VICTIMS, "executor") if any(hits[victim, step] for step in STEPS)]
        rows = [("step of the query aimed at", *victims, "all", "(the other)")]
        for step in STEPS:
            counts = [hits[victim, step] for victim in victims]
            rows.append((step, *counts, sum(counts), self.beside[step]))
        rows.append(("all", *(sum(column) for column in zip(*(row[1:] for row in rows[1:]), strict=True))))
        words = collections.Counter(line.split()[0] for driver in self.drivers for _, line in driver.lines if line)
        zombies = ", ".join(f"{count} {what}" for what, count in sorted(self.zombies.items()))
        lines = [
            f"{hits.total()} kills ({self.master.partition(':')[0]}), {self.records} records in the source",
            "",
            *("".join([f"{row[0]:38}", *(f"{cell:>15}" for cell in row[1:])]) for row in rows),
            "",
            f"micro-batches published: {', '.join(f'{name} {self.number(name)[0] + 1}' for name in QUERIES)}",
            f"drivers started: {len(self.drivers)}; queries: {words['started']}, {words['failed']} of them again "
            f"after a failure; told that they were replaced: {words['replaced']}",
            f"zombies: {zombies or 'none'}",
            f"drivers of which something was left 60 s after a part was killed: {self.left}",
        ]
        if self.options.report:
            self.options.report.write_text("\n".join([*lines, *(f"FAULT: {fault}" for fault in self.found), ""]))
        return lines
