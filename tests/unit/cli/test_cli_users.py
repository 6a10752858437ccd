"""`pylog users`: the users of a server, and where their passwords come from."""

import json
import os
import pty
import sys

import pytest
from cli_tools import output, pylog
from click.testing import CliRunner

from pyspark_log.cli.main import main
from pyspark_log.server.security.users import Users
from tests.documents import documents_at


@pytest.fixture
def users(store):
    return Users(documents_at(store.path))


@pytest.fixture
def secret(tmp_path):
    """A file with a password, with a newline at its end."""
    path = tmp_path / "secret"
    path.write_text("open sesame\n")
    return str(path)


def test_add_list_remove(either, secret):
    users = Users(documents_at(either.path))
    assert output(either, "users", "list") == "USER  MECHANISM  ITERATIONS\n"
    assert output(either, "users", "add", "anna", "--password-file", secret) == "Added user anna.\n"
    assert users.has_password("anna", "open sesame")
    arguments = ("--password-file", secret, "--mechanism", "SCRAM-SHA-256", "--iterations", "4096")
    assert output(either, "users", "add", "bert", *arguments) == "Added user bert.\n"
    assert output(either, "users", "list").splitlines() == [
        "USER  MECHANISM      ITERATIONS",
        "anna  SCRAM-SHA-512        8192",
        "anna  SCRAM-SHA-256        8192",
        "bert  SCRAM-SHA-256        4096",
    ]
    [_, bert] = json.loads(output(either, "users", "list", "--json"))
    assert bert == {"name": "bert", "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]}
    assert output(either, "users", "remove", "anna", "--yes") == "Removed user anna.\n"
    assert list(users.all()) == ["bert"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("users", "add", "anna", "--password-file", "SECRET"),
        ("acls", "add", "--principal", "User:anna", "--topic", "t"),
        ("quotas", "set", "producer_byte_rate=1", "--user", "anna"),
    ],
    ids=lambda one: one[0],
)
def test_the_first_of_them_makes_the_store(tmp_path, secret, arguments):
    """As `pylog serve` does: users are there before the first start."""
    path = tmp_path / "new"
    assert "is no store" in pylog(path, arguments[0], "list").stderr
    if arguments[0] == "users":
        assert pylog(path, "users", "add", "anna", "--password-file", "none").exit_code == 1
    assert not path.exists()
    made = pylog(path, *(secret if one == "SECRET" else one for one in arguments))
    assert (made.exit_code, made.stderr) == (0, f"Created a new store in {path}\n")


def test_another_password_leaves_none_of_the_old_one(store, users, secret):
    output(store, "users", "add", "anna", "--password-file", secret)
    result = CliRunner().invoke(
        main,
        ["--store", store.path, "users", "add", "anna", "--password-file", "-", "--mechanism", "SCRAM-SHA-256"],
        input="another\r\n",
    )
    assert result.output == "Changed the password of user anna.\n"
    assert list(users.all()["anna"]) == ["SCRAM-SHA-256"]
    assert users.has_password("anna", "another")


def test_a_password_at_a_terminal(store, users):
    """It is asked for twice, and not shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(
            sys.executable,
            [sys.executable, "-m", "pyspark_log.cli.start", "--store", store.path, "users", "add", "anna"],
        )
    shown = b""
    for prompt in (b"Password of anna: ", b"confirmation: "):
        while not shown.endswith(prompt):
            shown += os.read(terminal, 1)
        os.write(terminal, b"open sesame\n")
    _, status = os.waitpid(pid, 0)
    shown += os.read(terminal, 1000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert b"sesame" not in shown
    assert users.has_password("anna", "open sesame")


@pytest.mark.parametrize(("arguments", "code", "why"), [
    (("add", "anna"), 2, "There is no terminal"),
    (("add", "a\nb", "--password-file", "SECRET"), 1, "no user's name"),
    (("add", "anna", "--password-file", "missing"), 1, "missing: No such file"),
    (("add", "anna", "--password-file", os.devnull), 1, "is empty"),
    (("add", "anna", "--password-file", "SECRET", "--iterations", "4095"), 2, "4095"),
    (("add", "anna", "--password-file", "SECRET", "--mechanism", "PLAIN"), 2, "PLAIN"),
    (("remove", "anna", "--yes"), 1, "there is no user 'anna'"),
])  # fmt: skip
def test_what_is_refused(store, users, secret, arguments, code, why):
    result = pylog(store, "users", *(secret if one == "SECRET" else one for one in arguments))
    assert (result.exit_code, why in result.stderr) == (code, True), result.stderr
    assert "sesame" not in result.stderr
    assert users.all() == {}


def test_a_user_is_not_removed_without_a_question(store, users, secret):
    output(store, "users", "add", "anna", "--password-file", secret)
    assert pylog(store, "users", "remove", "anna").exit_code == 2
    assert list(users.all()) == ["anna"]
