"""A server with S3's protocol as a process, on loopback: moto, which keeps objects in memory."""

import contextlib
import http.client
import subprocess
import sys
import time

from tests.ports import HOST, free_ports

#: How long it may take to start, in seconds, on a busy machine.
PATIENCE = 120


class ObjectServer:
    """A server that runs, with one bucket.

    Attributes:
        endpoint: its address.
        bucket: the bucket's name.
        options: what a client needs to use it.
        environment: the same as variables, where a client finds them by itself.
    """

    def __init__(self, endpoint, bucket):
        self.endpoint, self.bucket = endpoint, bucket
        self.options = {
            "endpoint": endpoint, "region": "us-east-1", "access_key_id": "tests",
            "secret_access_key": "not a secret",
        }  # fmt: skip
        self.environment = {f"AWS_{name.upper()}": one for name, one in self.options.items()}


@contextlib.contextmanager
def moto(folder):
    """moto's server; what it says is in a file of the folder."""
    [port] = free_ports(1)
    with (folder / "moto").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main()", "-H", HOST, "-p", str(port)],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        _create_bucket(process, port, "bucket")
        yield ObjectServer(f"http://{HOST}:{port}", "bucket")
    finally:
        process.kill()
        process.wait()


def _create_bucket(process, port, name):
    """Returns when the server has started and has made the bucket."""
    end = time.monotonic() + PATIENCE
    while True:
        connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
        try:
            connection.request("PUT", f"/{name}")
            assert connection.getresponse().status == 200
        except ConnectionError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
