"""Servers with S3's protocol as processes, on loopback: moto, with objects in memory, and versitygw, in files."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.paths import ROOT
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
            [sys.executable, "-m", "tests.moto_server", str(port)], cwd=ROOT, stdout=output, stderr=output,
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


class Versitygw(ObjectServer):
    """versitygw, built by `make object-servers`. It can be killed and started again, with its objects."""

    def __init__(self, folder, version="1.8.0"):
        """Starts nothing yet; objects and what it says are in the folder.

        Where it is not built, the test is skipped, or fails if PYLOG_REQUIRE names objects.
        """
        self.program = ROOT / f".clients/object-servers/{version}/versitygw"
        if not self.program.exists():
            required = "objects" in os.environ.get("PYLOG_REQUIRE", "").split(",")
            (pytest.fail if required else pytest.skip)(f"versitygw {version} is missing: make object-servers")
        [self.port] = free_ports(1)
        super().__init__(f"http://{HOST}:{self.port}", "bucket")
        self.folder, self.process = folder, None
        # Its extended attributes are in files of their own, as not every file system has some.
        for name in ("objects/bucket", "attributes"):
            (folder / name).mkdir(parents=True)

    def start(self):
        """Returns when it serves."""
        with (self.folder / "versitygw").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    self.program, "--port", f"{HOST}:{self.port}", "--access", self.options["access_key_id"],
                    "--secret", self.options["secret_access_key"], "posix", "--sidecar", self.folder / "attributes",
                    self.folder / "objects",
                ],
                stdout=output, stderr=output,
            )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection((HOST, self.port), PATIENCE).close()
            except ConnectionError:
                assert self.process.poll() is None, "the server has ended"
                assert time.monotonic() < end, "the server does not start"
                time.sleep(0.02)
            else:
                return

    def kill(self):
        """Ends it at once, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
