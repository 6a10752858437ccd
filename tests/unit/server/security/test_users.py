"""The users of a store: what is in their document, and that nothing shows whether there is a user of a name."""

import base64
import hmac
import stat

import pytest

from pyspark_log.admin import verify
from pyspark_log.errors import DescriptionError, InvalidConfigError
from pyspark_log.server.security.users import (
    HASHES,
    ITERATIONS,
    Users,
    check_name,
    credential_of,
    make_credential,
    salted_password,
)
from pyspark_log.storage.catalog import store_json
from tests.documents import documents_at


@pytest.fixture
def users(kept):
    return Users(documents_at(kept.path))


def _all(password, iterations=ITERATIONS):
    return {mechanism: make_credential(mechanism, password, iterations) for mechanism in HASHES}


def test_the_keys_are_those_of_rfc_7677():
    """By the example of its section 3."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    found = credential_of("SCRAM-SHA-256", salted_password("SCRAM-SHA-256", "pencil", salt, 4096), salt, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    said = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    signature = base64.b64encode(hmac.digest(found.server_key, said, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_a_password(users):
    users.change({"anna": _all("secret")})
    assert users.has_password("anna", "secret")
    assert not users.has_password("anna", "Secret")
    assert not users.has_password("anna", "")
    assert not users.has_password("bert", "secret")


@pytest.mark.parametrize("mechanism", HASHES)
def test_one_mechanism_is_enough_for_a_password(users, mechanism):
    users.change({"anna": {mechanism: make_credential(mechanism, "secret")}})
    assert users.has_password("anna", "secret")
    assert not users.has_password("anna", "other")


def test_no_password_is_kept(users, kept):
    users.change({"anna": _all("a very secret word")})
    assert b"anna" in kept.bytes_of("users.json")
    assert b"secret word" not in kept.bytes_of("users.json")


def test_the_file_is_its_owners(folder):
    users = Users(documents_at(folder))
    users.change({"anna": _all("a very secret word")})
    [path] = [path for path in (folder / "state").iterdir() if path.name == "users.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Nor does the mode of the one before matter.
    path.chmod(0o644)
    users.change({"anna": _all("another")})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_change_of_another_process_counts_at_once(users, kept):
    others = Users(documents_at(kept.path))
    assert users.all() == {}
    others.change({"anna": _all("one"), "bert": _all("two")})
    assert users.has_password("anna", "one")
    others.change({"anna": _all("three")})
    assert not users.has_password("anna", "one")
    assert users.has_password("anna", "three")
    others.change({"anna": dict.fromkeys(HASHES)})
    assert not users.has_password("anna", "three")
    assert list(users.all()) == ["bert"]


def test_a_user_that_does_not_exist_looks_as_if_it_did(users, kept):
    users.change({"anna": _all("secret", 5000), "bert": {"SCRAM-SHA-256": make_credential("SCRAM-SHA-256", "x", 6000)}})
    for mechanism in HASHES:
        found, exists = users.credential("nobody", mechanism)
        again, _ = Users(documents_at(kept.path)).credential("nobody", mechanism)
        other, _ = users.credential("another", mechanism)
        real, is_there = users.credential("anna", mechanism)
        assert (exists, is_there) == (False, True)
        # To the client it looks the same each time, also after a restart.
        assert (found.salt, found.iterations) == (again.salt, again.iterations)
        assert found.salt != other.salt
        assert len(found.salt) == len(real.salt)
        assert found.iterations in (5000, 6000)
        assert len(found.stored_key) == len(real.stored_key)


def test_a_store_without_users(users, kept):
    assert users.all() == {}
    assert not users.has_password("anna", "")
    assert kept.bytes_of("users.json") is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"version": 1, "secret": "", "users": {"a": {"SCRAM-SHA-256": 1}}}']
)
def test_a_damaged_document_is_no_empty_one(users, kept, content):
    kept.write("users.json", content)
    with pytest.raises(DescriptionError, match="no valid list of users"):
        users.has_password("anna", "secret")
    with pytest.raises(DescriptionError):
        users.change({"anna": _all("secret")})
    assert kept.bytes_of("users.json") == content


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "x" * 256, "\ufb01", "\ud800"])
def test_what_is_no_name(name):
    with pytest.raises(InvalidConfigError):
        check_name(name)


@pytest.mark.parametrize("name", ["anna", "anna@example.com", "CN=anna,O=x", "żółw", "a b", "x" * 255])
def test_what_is_a_name(name):
    check_name(name)


def test_verify_knows_the_document(users, kept):
    users.change({"anna": _all("secret")})
    assert [str(finding) for finding in verify(kept.path).findings] == []


def test_users_are_no_partitions(folder, tmp_path):
    """A store without records can still get another log dir, and then its first one is made."""
    users = Users(documents_at(folder))
    users.change({"anna": _all("secret")})
    assert not (folder / "data").exists()
    store_json.add_log_dir(str(folder), str(tmp_path / "second"))
    assert (folder / "data").is_dir()
