"""docs/guides/security.md: its commands make certificates, a user and a server, and its clients reach it."""

import json
import shlex
import shutil

import pytest
from joserfc.jwk import ECKey, KeySet

from pyspark_log import Store
from tests.pages import blocks, run_python, run_shell
from tests.server_tools import Server

_SH, _PYTHON = (blocks("guides/security.md", language) for language in ("sh", "python"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The page's folders, with what its commands make."""
    if shutil.which("openssl") is None:
        pytest.skip("the page makes certificates with openssl, which is not here")
    folder = tmp_path_factory.mktemp("page")
    (folder / "etc").mkdir()
    printed = [run_shell(_here(code, folder), folder) for code in (_SH[0], _SH[2], _SH[4])]
    assert "anna  SCRAM-SHA-512" in printed[1]
    assert printed[2].count("User:anna  *     allow") == 3
    with Store.open(folder / "store") as store:
        store.create_topic("orders", 1)
    return folder


def _here(code, folder):
    return code.replace("/etc/pylog", f"{folder}/etc").replace("/data/store", f"{folder}/store")


def _options(code, folder):
    """Those of a line that starts a server, but for its store and its address."""
    words = shlex.split(_here(code, folder))
    assert words[:2] == ["pylog", "serve"]
    first = ["--store", f"{folder}/store", "--listen", "0.0.0.0:9093", "--advertise", "kafka.example:9093"]
    assert words[2:8] == first
    return words[8:]


def _server(code, folder):
    server = Server(folder / "store", folder, *_options(code, folder))
    server.bootstrap = f"0.0.0.0:{server.port}"
    # The certificate has this name, too.
    server.options += ("--advertise", f"localhost:{server.port}")
    return server


@pytest.mark.parametrize("line", [1, 5])
def test_the_clients(place, line):
    server = _server(_SH[line], place).start()
    try:
        password = (place / "etc/anna.password").read_text().strip()
        printed = []
        for sample in _PYTHON:
            code = _here(sample, place).replace("kafka.example:9093", f"localhost:{server.port}")
            printed.append(run_python(code.replace("PASSWORD", password)))
        assert printed == ["", "b'12'\n"]
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_server_for_tokens(place):
    keys = KeySet([ECKey.generate_key("P-256")]).as_dict(private=False)
    (place / "etc/jwks.json").write_text(json.dumps(keys))
    server = _server(_SH[3], place).start()
    assert server.stop() == 0
