"""The page of a store as tests need it: a process of `pylog ui`, and what it answers."""

import contextlib
import html
import http.client
import os
import re
from pathlib import Path

from tests.forked import ForkedPylog
from tests.ports import HOST
from tests.server_tools import PATIENCE


class UiProcess:
    """`pylog ui` over a store.

    Attributes:
        port: where it listens.
    """

    def __init__(self, path, *options):
        said, says = os.pipe()
        self._said = open(said, encoding="utf-8")  # noqa: SIM115  (kill closes it)
        with open(says, "w", encoding="utf-8") as output:
            words = "ui", "--store", path, "--listen", f"{HOST}:0", *options
            self._process = ForkedPylog(words, output, output)
        line = self._said.readline()
        assert f" on http://{HOST}:" in line, line + self._said.read()
        self.port = int(line.rstrip("/\n").rpartition(":")[2])
        self.url = f"http://{HOST}:{self.port}"

    def get(self, path, method="GET", **headers):
        """Asks for a page: its status, headers and text."""
        return ask(self.port, path, method, **headers)

    def text(self, path):
        """The text of a page, without its tags."""
        status, _, body = self.get(path)
        assert status == 200, body
        return without_tags(body)

    def bytes_read(self):
        """How many bytes the process has read from files and sockets so far."""
        content = Path(f"/proc/{self._process.pid}/io").read_text(encoding="ascii")
        return int(re.search(r"rchar: (\d+)", content)[1])

    def resident(self):
        """Its memory, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def stop(self):
        """Ctrl-C; what it has said since it began to listen."""
        self._process.send_signal(2)
        assert self._process.wait(PATIENCE) == 130
        return self._said.read()

    def kill(self):
        """Ends it, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._said.close()


@contextlib.contextmanager
def shown(path, *options):
    """A page that is there until the end of the block. It must not have met an error."""
    page = UiProcess(path, *options)
    try:
        yield page
        assert page.stop() == ""
    finally:
        page.kill()


def ask(port, path, method="GET", connection=http.client.HTTPConnection, host=HOST, **headers):
    """Asks for a page: its status, headers and text."""
    client = connection(host, port, timeout=PATIENCE)
    try:
        client.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = client.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        client.close()


def without_tags(page):
    """What is read on a page, each piece after a space, but for the coloured parts of JSON."""
    body = re.sub(r'<span class="(?:name|string|digits|word)">(.*?)</span>', r"\1", page[page.index("<main") :])
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body)))
