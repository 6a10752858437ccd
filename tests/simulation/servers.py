"""Servers of the simulation: the product's `serve`, with all its threads, over a simulated network and object store."""

import contextlib
import logging
import signal
from functools import partial

from pyspark_log import Store
from pyspark_log.errors import PylogError
from pyspark_log.server import server as server_module
from pyspark_log.server.handlers import Call, Client
from pyspark_log.server.handlers.call import key_of
from pyspark_log.server.server import ServerConfig, serve
from tests.simulation.scheduler import Clock, Process

#: The address of the store.
URL = "s3://simulated/store"
# How long a client waits for an answer, in seconds, as Kafka's request.timeout.ms.
_PATIENCE = 30.0


class Host:
    """A machine on which a server runs, now and then.

    Attributes:
        process: the server that runs; None: none does.
        processes: with those that it has replaced, and that may continue.
        server: what it is once it serves; None: it does not.
    """

    def __init__(self, world, number, node_id, wrong):
        """`wrong`: by how many seconds its clock may be."""
        self.world, self.number, self.node_id = world, number, node_id
        self.clock = Clock(world, rate=world.chance.uniform(0.97, 1.03), wrong=world.chance.uniform(-wrong, wrong))
        self.process, self.server, self.unanswered, self.starts = None, None, [], 0
        self.may_start, self.thaws, self.processes = True, 0.0, []

    @property
    def is_up(self):
        return self.process is not None

    def start(self):
        """Starts a server; once the machine is awake."""
        if self.clock.asleep_until > self.world.now:
            self.world.after(self.clock.asleep_until - self.world.now, self.start_if_down)
            return
        self.starts += 1
        self.process = Process(f"server-{self.number}.{self.starts}", self.clock)
        self.process.host = self
        self.processes = [process for process in self.processes if not process.is_dead] + [self.process]
        self.world.spawn(self.process, "main", partial(self._serve, self.process))

    def _serve(self, process):
        config = ServerConfig(advertised=(f"host-{self.number}", 9092), node_id=self.node_id)
        try:
            serve(Store.open(URL), config, lambda _: None)
        except (PylogError, OSError) as error:
            self.world.note(f"{process.name} has failed: {error}")
            # As a process manager does; not if it was replaced.
            self.world.after(self.world.chance.uniform(1, 10), self.start_if_down)
        if self.process is process:
            self._gone()
        self.world.kill(process)

    def start_if_down(self):
        if self.process is None and self.may_start:
            self.start()

    def _gone(self):
        self.process = self.server = None
        for answer in self.unanswered:
            answer.fail()
        self.unanswered = []

    def kill(self):
        """SIGKILL."""
        process = self.process
        self._gone()
        self.world.kill(process)

    def end(self):
        """SIGTERM."""
        if self.server is not None:
            server = self.server
            server._loop.call_from_elsewhere(server._stop, signal.SIGTERM, None)

    def freeze(self, seconds, *, is_asleep):
        """SIGSTOP, and SIGCONT some time later; or the machine sleeps."""
        self.thaws = max(self.thaws, self.world.now + seconds)
        for process in self.processes if is_asleep else [self.process]:
            self.world.freeze(process, seconds)
        if is_asleep:
            self.clock.sleep(seconds)

    def replace(self, seconds):
        """The server stops, and another one starts in its place; the first continues some time later."""
        process = self.process
        self.freeze(seconds, is_asleep=False)
        self._gone()
        self.start()
        if self.node_id is None:
            # It would be one more server.
            self.world.after(seconds + 30, lambda: self.world.kill(process))

    def end_replaced(self):
        """One whose node id another one has has ended by now; others are killed."""
        for process in self.processes[:-1]:
            if not process.is_dead and self.node_id is not None:
                self.world.fault(f"{process.name} has not ended")
            self.world.kill(process)

    def receive(self, answer, request, version):
        """A request has arrived."""
        server, process = self.server, self.process
        if server is None or server._loop.is_closed:
            answer.fail()
            return
        self.unanswered.append(answer)
        call = Call(server.broker, Client("1.2.3.4:5", ("host", 9092)), "client", version)
        handler = server.broker.apis[key_of(type(request))].handler

        def begin():
            wait = server._loop.start(handler(call, request))
            wait.then(lambda: reply(None if wait.error is not None else wait.value))

        def reply(response):
            if not process.is_dead and answer in self.unanswered:
                self.unanswered.remove(answer)
                self.world.after(self.world.chance.uniform(0.0005, 0.01), lambda: answer.finish(response))

        server._loop.call_from_elsewhere(begin)


class Answer:
    """What a client waits for."""

    def __init__(self, world):
        self._world, self._task, self.response = world, world.current, None

    def finish(self, response):
        if self._task is not None:
            self.response = response
            self._world.wake(self._task)

    def fail(self):
        """The connection has ended."""
        self._world.after(0.001, lambda: self.finish(None))

    def give_up(self):
        self._task = None


def ask(world, host, request, version):
    """The answer to a request of the current task; None: there is none, whatever has become of the request."""
    answer = Answer(world)
    world.after(world.chance.uniform(0.0005, 0.01), lambda: host.receive(answer, request, version))
    world.block(world.now + _PATIENCE)
    answer.give_up()
    return answer.response


def network(world):
    """What takes the place of the server's port and signals, by the places in which they are."""

    class Port:
        def __init__(self, _loop, _host, _port, open_session, *_):
            self.address, self._server, self.connections = ("127.0.0.1", 9092), open_session.__self__, ()

        def start(self):
            process = world.current.process
            if process.host.process is process:
                process.host.server = self._server

        def close(self):
            """Nothing is open."""

    return {(server_module, "Listener"): Port, (server_module._Server, "_signals"): lambda _: contextlib.nullcontext()}


class Faults(logging.Handler):
    """What the product logs of errors that it did not expect are faults."""

    def __init__(self, world):
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record):
        if record.exc_info and record.exc_info[1] is not None:
            self._world.fault(f"an error that was not expected: {record.exc_info[1]!r}", record.exc_info[1])
