"""A server as a process, as `pylog serve` starts it, and a client of its that speaks Kafka's protocol plainly."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from pyspark_log import Store
from pyspark_log.kafka import decode_response, encode_request
from pyspark_log.kafka.schemas import message_of
from tests import several_servers
from tests.forked import ForkedPylog
from tests.ports import HOST, free_ports

#: How long a server may take to start or to stop, and a client waits for an answer, on a busy machine; in seconds.
PATIENCE = 240


class Server:
    """`pylog serve` over a store. It can be stopped or killed, and started again on the same port.

    Attributes:
        path: the store's folder.
        host, port: where it listens.
        bootstrap: the same as clients want it.
        options: those of the command.
        is_forked: whether it is forked with its modules loaded, if the interpreter is the usual one, and runs a module.
        interpreter: the Python that runs it.
        program: what Python runs; it takes the arguments of `pylog serve`.
    """

    is_forked = True
    interpreter = (sys.executable,)
    program = ("-m", "pyspark_log.cli.start", "serve")

    def __init__(self, path, folder, *options):
        """Starts nothing yet; `folder` is for its log, `options` are the command's."""
        self.path, self.options = path if "://" in str(path) else Path(path), options
        self.host, self.port = HOST, free_ports(1)[0]
        self.bootstrap = f"{HOST}:{self.port}"
        self._ready, self._output = Path(folder) / "ready", Path(folder) / "output"
        self.process = None

    def start(self):
        """Returns when it serves."""
        self.launch()
        self.await_start()
        return self

    def launch(self):
        """Starts it, and returns at once."""
        self._ready.unlink(missing_ok=True)  # of one that a test has killed
        options = ["--store", self.path, "--listen", self.bootstrap, "--ready-file", self._ready, *self.options]
        kind, module, *words = self.program
        with open(self._output, "ab") as output:
            if self.is_forked and (self.interpreter, kind) == (Server.interpreter, "-m"):
                self.process = ForkedPylog([*words, *options], output, output, module)
            else:
                command = [*self.interpreter, *self.program, *options]
                self.process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output)

    def await_start(self):
        """Returns when it serves, after `launch`."""
        end = time.monotonic() + PATIENCE
        while not self._ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the server has not started: {self.output()}")
            time.sleep(0.01)

    def stop(self, number=signal.SIGTERM):
        """Ends it in order; its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        """Ends it at once, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def output(self):
        """What it has said so far."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def wait_for(self, text, after=0):
        """Returns when it has said something, after so many characters of its output."""
        end = time.monotonic() + PATIENCE
        while text not in self.output()[after:]:
            assert time.monotonic() < end, f"the server does not say {text!r}: {self.output()}"
            time.sleep(0.01)

    def open_files(self, part):
        """How many files it has open whose paths have this part."""
        found = 0
        for one in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found += part in os.readlink(f"/proc/{self.process.pid}/fd/{one}")
        return found

    def resident(self):
        """Its memory, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024


class NewServer(Server):
    """A server that a new Python runs."""

    is_forked = False


@contextlib.contextmanager
def served(path, folder, *options, kind=Server):
    """A server that runs, and is stopped at the end of the block. It must not have met an unknown error."""
    # So that each line is there: else like ones are one in a minute.
    verbose = ["--verbose"] if kind.program[-1] == "serve" else []
    with running(kind(path, folder, *verbose, *options)) as server:
        yield server


@contextlib.contextmanager
def running(server):
    """The same with a server that was made before."""
    try:
        server.start()
        yield server
        assert server.process.poll() is None, server.output()
        assert server.stop() == 0, server.output()
        assert "Traceback" not in server.output(), server.output()
    finally:
        server.kill()


def make_store(folder, topics=(), place=None):
    """A new store in a folder, or at another place, with topics of one partition; its path."""
    with Store.create(place or folder / "store") as store:
        for topic in topics:
            store.create_topic(topic, 1)
    return place or folder / "store"


@contextlib.contextmanager
def served_anew(folder, *options, kind=Server, topics=()):
    """A server over a new store in a folder, which has topics of one partition, as `served`; see several_servers."""
    if several_servers.KIND:
        with several_servers.several(folder, options, kind, topics) as server:
            yield server
        return
    make_store(folder, topics)
    with served(folder / "store", folder, *options, kind=kind) as server:
        yield server


class Peer:
    """A connection to a server.

    Attributes:
        client_id: the name that it gives itself.
    """

    client_id = "tests"

    def __init__(self, server, source=""):
        """Connects, if given from that address of this machine."""
        address = server.host, server.port
        self.socket = socket.create_connection(address, timeout=PATIENCE, source_address=(source, 0))
        self._next = 0
        self._versions = {}

    def close(self):
        """Closes the connection."""
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, request, version):
        """Sends a request, and gives the response."""
        self.send(request, version)
        return self.response()

    def send(self, request, version):
        """Sends a request."""
        self.socket.sendall(self.encoded(request, version))

    def encoded(self, request, version):
        """A request as bytes, which is about to be sent."""
        self._next += 1
        self._versions[self._next] = message_of(request).api_key, version
        return b"".join(map(bytes, encode_request(request, version, self._next, self.client_id)))

    def response(self):
        """The next response. ConnectionError: the server has closed the connection."""
        frame = self.receive(int.from_bytes(self.receive(4), "big"))
        number = int.from_bytes(frame[:4], "big")
        key, version = self._versions.pop(number)
        found, response = decode_response(key, version, frame)
        assert found == number
        return response

    def receive(self, count):
        """That many bytes."""
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"the server has closed the connection after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)

    def is_closed_by_server(self):
        """Waits for the end of the connection; False: there are bytes first."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
