"""Controllers of Kafka, without a broker, of which any may be killed."""

import signal
import subprocess
import time

from tests.kafka.kafka_tools import PATIENCE, command, run
from tests.ports import HOST, free_ports

_SAY_WHEN_STARTED = "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"
_STARTED = "Kafka Server started"


class Quorum:
    """Some controllers.

    Attributes:
        addresses: where they are.
        cluster_id: of their cluster.
    """

    def __init__(self, folder, count=3, session_ms=3000):
        """Formats their folders; starts nothing yet."""
        self._folder, ports = folder, free_ports(count)
        self.addresses = [(HOST, port) for port in ports]
        self.cluster_id = run("kafka.tools.StorageTool", "random-uuid").strip()
        self._processes = [None] * count
        voters = ",".join(f"{3000 + number}@{HOST}:{port}" for number, port in enumerate(ports))
        for number, port in enumerate(ports):
            settings = {
                "process.roles": "controller",
                "node.id": 3000 + number,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://{HOST}:{port}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                "log.dirs": folder / f"logs{number}",
                "broker.session.timeout.ms": session_ms,
                "metadata.log.max.record.bytes.between.snapshots": 4000,
            }
            text = "".join(f"{name}={value}\n" for name, value in settings.items())
            self._settings(number).write_text(text)
            run("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "--config", self._settings(number))

    def _settings(self, number):
        return self._folder / f"controller{number}.properties"

    def start(self, *numbers):
        """Starts some; returns when they serve."""
        begun = []
        for number in numbers:
            path = self._folder / f"output{number}"
            with open(path, "ab") as output:
                begun.append((path, output.tell()))
                of = command("kafka.Kafka", self._settings(number), memory="160m", options=(_SAY_WHEN_STARTED,))
                self._processes[number] = subprocess.Popen(of, stdout=output, stderr=output, start_new_session=True)
        end = time.monotonic() + PATIENCE
        for path, begin in begun:
            while _STARTED not in path.read_bytes()[begin:].decode(errors="replace"):
                if time.monotonic() > end:
                    raise RuntimeError(f"a controller has not started: {path.read_bytes()[-4000:]}")
                time.sleep(0.05)

    def signal(self, number, signal_number):
        """Sends a signal to one."""
        self._processes[number].send_signal(signal_number)

    def kill(self, number):
        """Ends one at once."""
        self.signal(number, signal.SIGKILL)
        self._processes[number].wait()
        self._processes[number] = None

    def close(self):
        """Ends those that run."""
        for number, process in enumerate(self._processes):
            if process is not None:
                self.kill(number)
