"""Schemas of a registry over HTTP, of its cache, and of a folder."""

import json
import pickle

import pytest

from pyspark_log.errors import IncompatibleSchemaError, RegistryError, SchemaError
from pyspark_log.schemas import Login, Registry, Schema, SchemaFolder, source_of
from tests.registry_server import registry_server

LONG, TEXT = '"long"', '"string"'


@pytest.fixture
def registry():
    with registry_server() as server:
        yield server


def test_the_latest_schema_of_a_subject_and_that_of_a_number(registry):
    first, second = registry.register("a/b-value", LONG), registry.register("a/b-value", TEXT)
    asked = Registry((registry.url,))
    assert asked.latest("a/b-value") == Schema("avro", TEXT, second)
    assert asked.by_id(first, "a/b-value") == Schema("avro", LONG, first)
    assert [one.text for one in asked.versions("a/b-value")] == [LONG, TEXT]


def test_a_number_is_asked_for_once(registry):
    number = registry.register("t-value", LONG)
    asked = Registry((registry.url,))
    assert asked.by_id(number, "t-value") is asked.by_id(number, "t-value")
    assert registry.asked == [f"GET /schemas/ids/{number}"]
    assert pickle.loads(pickle.dumps(asked)) == asked


def test_what_there_is_not(registry):
    asked = Registry((registry.url,))
    with pytest.raises(SchemaError, match="has no schema for subject t-value"):
        asked.latest("t-value")
    with pytest.raises(SchemaError, match=r"no schema for schema id 7 \(in a value of t-value\)"):
        asked.by_id(7, "t-value")


def test_references_come_before_what_uses_them(registry):
    registry.register("x", '{"type": "fixed", "name": "X", "size": 1}')
    registry.register("y", "y", references=[{"name": "X", "subject": "x", "version": 1}])
    uses = [{"name": "Y", "subject": "y", "version": 1}, {"name": "X", "subject": "x", "version": 1}]
    registry.register("t-value", "t", references=uses)
    found = Registry((registry.url,)).latest("t-value").references
    assert [name for name, _ in found] == ["X", "Y"]


def test_a_schema_is_registered_once_unless_a_rule_refuses_it(registry):
    asked, schema = Registry((registry.url,)), Schema("json", "{}")
    with pytest.raises(SchemaError, match="has no such schema in t-value"):
        asked.number_of("t-value", schema)
    number = asked.register("t-value", schema)
    assert [asked.register("t-value", schema), asked.number_of("t-value", schema)] == [number, number]
    assert asked.latest("t-value") == Schema("json", "{}", number)
    registry.refused.add(LONG)
    with pytest.raises(IncompatibleSchemaError, match="refuses the schema for t-value"):
        asked.register("t-value", Schema("avro", LONG))


def test_a_login_is_sent_and_never_shown():
    with registry_server("anna:secret") as registry:
        registry.register("t-value", LONG)
        login = Login("anna", "secret")
        assert Registry((registry.url,), login).latest("t-value").text == LONG
        assert "secret" not in repr(Registry((registry.url,), login))
        with pytest.raises(RegistryError, match="401 User cannot access") as refused:
            Registry((registry.url,)).latest("t-value")
        assert refused.value.status == 401
    with pytest.raises(RegistryError, match="has a login in it"):
        Registry(("http://anna:secret@host",))
    assert Login(token="t").header == "Bearer t"


def test_the_next_instance_is_asked_if_one_does_not_answer(registry):
    registry.register("t-value", LONG)
    with registry_server() as other:
        closed = other.url
    assert Registry((closed, registry.url)).latest("t-value").text == LONG
    with pytest.raises(RegistryError, match="has not answered") as silent:
        Registry((closed,)).latest("t-value")
    assert silent.value.status == 0


def test_a_cache_answers_when_the_registry_does_not(tmp_path):
    with registry_server() as registry:
        registry.register("x", '"int"')
        number = registry.register("t-value", LONG, references=[{"name": "X", "subject": "x", "version": 1}])
        known = Registry((registry.url,), cache=f"{tmp_path}/cache")
        expected = known.latest("t-value"), known.by_id(number, "t-value"), known.versions("t-value")
        Registry((registry.url,), cache=f"{tmp_path}/cache").by_id(number, "t-value")
    offline = Registry((registry.url,), cache=f"{tmp_path}/cache")
    assert (offline.latest("t-value"), offline.by_id(number, "t-value"), offline.versions("t-value")) == expected
    with pytest.raises(RegistryError, match="has not answered"):
        offline.latest("other-value")


def test_what_is_no_registry(tmp_path):
    with pytest.raises(RegistryError, match="expected the URL of a schema registry"):
        Registry(("https://",))
    with pytest.raises(RegistryError, match=r"certificates of the schema registry .*/none\.pem"):
        Registry(("https://localhost",), Login(ca_file=f"{tmp_path}/none.pem")).latest("t")


def test_schemas_in_a_folder(tmp_path):
    (tmp_path / "t-value.avsc").write_text(LONG)
    (tmp_path / "7.json").write_text("{}")
    folder = SchemaFolder(str(tmp_path))
    assert folder.latest("t-value") == Schema("avro", LONG)
    assert folder.by_id(7, "t-value") == Schema("json", "{}", 7)
    assert folder.by_id(8, "t-value") == Schema("avro", LONG)
    with pytest.raises(SchemaError, match=r"has no u-value\.avsc or u-value\.proto or u-value\.json"):
        folder.latest("u-value")
    with pytest.raises(SchemaError, match="no name of a file"):
        folder.latest("../t-value")
    with pytest.raises(SchemaError, match=f"there is no folder {tmp_path}/no"):
        SchemaFolder(f"{tmp_path}/no").latest("t-value")


def test_sources_by_settings():
    assert source_of({}) is None
    assert source_of({"schemaregistry": "/etc/schemas"}) == SchemaFolder("/etc/schemas")
    settings = {
        "schemaregistry": "https://a:1, https://b:2", "schemaregistry.user": "u", "schemaregistry.password": "p",
        "schemaregistry.cafile": "ca.pem", "schemaregistry.cache": "/var/cache",
    }  # fmt: skip
    assert source_of(settings) == Registry(
        ("https://a:1", "https://b:2"), Login("u", "p", ca_file="ca.pem"), "/var/cache"
    )


def test_a_schema_of_another_kind_than_is_known(registry):
    registry.register("t-value", json.dumps({}), "XML")
    with pytest.raises(SchemaError, match="of the type xml"):
        Registry((registry.url,)).latest("t-value")
