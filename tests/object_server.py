"""Servers of objects as processes, on loopback: moto and versitygw with S3's protocol, Azurite with Azure's."""

import base64
import contextlib
import email.utils
import hmac
import http.client
import os
import shutil
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
        _ask_until_served(process, port, "/bucket", {})
        yield ObjectServer(f"http://{HOST}:{port}", "bucket")
    finally:
        process.kill()
        process.wait()


def _ask_until_served(process, port, path, headers):
    """Puts a bucket or a container; returns when the server has started and has made it."""
    end = time.monotonic() + PATIENCE
    while True:
        connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
        try:
            connection.request("PUT", path, headers=headers)
            answer = connection.getresponse()
            assert answer.status in (200, 201), answer.read()
        except ConnectionError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()


# The account that Azurite has by itself, and its key; both are public.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def azurite(folder):
    """Azurite's server, which speaks the protocol of Azure's blobs; `make object-servers` installs it.

    Where it is missing, the test is skipped, or fails if PYLOG_REQUIRE names objects.
    """
    program = ROOT / ".clients/object-servers/azurite/node_modules/.bin/azurite-blob"
    _check_present(program, "Azurite")
    [port] = free_ports(1)
    options = ["--blobHost", HOST, "--blobPort", str(port), "--location", folder, "--skipApiVersionCheck", "--silent"]
    with (folder / "azurite").open("wb") as output:
        process = subprocess.Popen([program, *options], stdout=output, stderr=output)
    try:
        _ask_until_served(process, port, *_new_container("container"))
        server = ObjectServer(f"http://{HOST}:{port}/{_ACCOUNT}", "container")
        server.options = {"endpoint": server.endpoint, "account_name": _ACCOUNT, "account_key": _KEY}
        server.environment = {f"AZURE_STORAGE_{name.upper()}": one for name, one in server.options.items()}
        yield server
    finally:
        process.kill()
        process.wait()


def _new_container(name):
    """Path and headers of a request that makes a container, signed with Azure's Shared Key."""
    date = email.utils.formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed += f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), signed.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {_ACCOUNT}:{signature}", "Content-Length": "0"}
    return f"/{_ACCOUNT}/{name}?restype=container", headers


def _check_present(program, name):
    if not program.exists():
        required = "objects" in os.environ.get("PYLOG_REQUIRE", "").split(",")
        (pytest.fail if required else pytest.skip)(f"{name} is missing: make object-servers")


class Versitygw(ObjectServer):
    """versitygw, built by `make object-servers`. It can be killed and started again, with its objects."""

    def __init__(self, folder, version="1.8.0"):
        """Starts nothing yet; objects and what it says are in the folder.

        Where it is not built, the test is skipped, or fails if PYLOG_REQUIRE names objects.
        """
        self.program = ROOT / f".clients/object-servers/{version}/versitygw"
        _check_present(self.program, f"versitygw {version}")
        [self.port] = free_ports(1)
        super().__init__(f"http://{HOST}:{self.port}", "bucket")
        self.folder, self.process = folder, None
        # Its extended attributes are in files of their own, as not every file system has some.
        for name in ("objects/bucket", "attributes"):
            (folder / name).mkdir(parents=True)

    def start(self):
        """Returns when it serves.

        It writes an object's attributes first, so a kill can leave some without their object, and it would neither find
        nor create that object then. They are removed before.
        """
        attributes, objects = self.folder / "attributes", self.folder / "objects"
        for found in list(attributes.rglob("meta")):
            if not (objects / found.parent.relative_to(attributes)).exists():
                shutil.rmtree(found)
        with (self.folder / "versitygw").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    self.program, "--port", f"{HOST}:{self.port}", "--access", self.options["access_key_id"],
                    "--secret", self.options["secret_access_key"], "posix", "--sidecar", attributes, objects,
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
