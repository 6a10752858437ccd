"""A schema registry over HTTP: Confluent's API, which Apicurio's (at `/apis/ccompat/v7`) and Karapace's answer, too.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from pyspark_log.errors import IncompatibleSchemaError, RegistryError, SchemaError
from pyspark_log.schemas.registry_cache import RegistryCache
from pyspark_log.schemas.schema import KINDS, Schema

_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 10
# A longer answer is none of a registry's.
_MOST_BYTES = 16 * 1024 * 1024
# Numbers of errors: there is no such subject, version or schema.
_MISSING = (40401, 40402, 40403)
_NOT_FOUND, _SERVER_ERROR = 404, 500
_CONFLICT = 409
# How many schemas may use each other in a row.
_MOST_REFERENCES = 100


@dataclass(frozen=True)
class Login:
    """How a registry is reached.

    Attributes:
        user, password: of HTTP's basic authentication; "": none.
        token: of HTTP's bearer authentication; "": none.
        ca_file: certificates in PEM of those that may sign the registry's; "": those that Python
            trusts.
        cert_file, key_file: the client's own certificate and key in PEM; "": none.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def header(self) -> str:
        """The header `Authorization`; "": there is none."""
        if self.token:
            return f"Bearer {self.token}"
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}" if self.user else ""

    def tls(self) -> ssl.SSLContext:
        """What checks the registry's certificate. RegistryError: a file is missing or is none."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except (OSError, ValueError) as error:
            files = ", ".join(name for name in (self.ca_file, self.cert_file, self.key_file) if name)
            raise RegistryError(f"certificates of the schema registry ({files}): {error}") from None
        return context


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another host would get the login."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401
        return None


@dataclass(frozen=True)
class Registry:
    """A registry; schemas, once fetched, are kept in memory and, if there is a cache, on disk.

    Attributes:
        urls: of its instances; the first that answers is asked.
        login: how it is reached.
        cache: the folder that keeps answers for times when no instance answers; "": none.
    """

    urls: tuple[str, ...]
    login: Login = Login()
    cache: str = ""
    _by_id: dict[int, Schema] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for url in self.urls:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise RegistryError(f"{url}: expected the URL of a schema registry, as http://host:8081")
            if parts.username or parts.password:
                raise RegistryError("the URL of a schema registry has a login in it, which plans and logs would show")

    def latest(self, subject: str) -> Schema:
        """The newest schema of a subject; the cached one if no instance answers. SchemaError, RegistryError."""
        return self._version(subject, "latest")

    def by_id(self, number: int, subject: str) -> Schema:
        """The schema of a number. SchemaError: there is none; RegistryError: nothing has answered."""
        if number not in self._by_id:
            path, kept = f"/schemas/ids/{number}", RegistryCache(self.cache, self.urls)
            # The schema of a number never changes.
            answer = kept.read(path) or self._get(path, f"schema id {number} (in a value of {subject})")
            kept.write(path, answer)
            self._by_id[number] = self._schema({**answer, "id": number})
        return self._by_id[number]

    def versions(self, subject: str) -> list[Schema]:
        """All schemas of a subject, from the oldest. SchemaError, RegistryError."""
        numbers = self._get_or_cached(f"/subjects/{_quoted(subject)}/versions", f"subject {subject}")
        return [self._version(subject, str(number)) for number in numbers]

    def has(self, subject: str) -> bool:
        """Whether a subject has a schema. RegistryError: no answer."""
        try:
            self._get(f"/subjects/{_quoted(subject)}/versions", f"subject {subject}")
        except SchemaError:
            return False
        return True

    def register(self, subject: str, schema: Schema) -> int:
        """Adds a schema to a subject, and returns its number; one that is there keeps it.

        Raises:
            IncompatibleSchemaError: the subject's rule refuses it.
            RegistryError: no answer.
        """
        return int(self._post(f"/subjects/{_quoted(subject)}/versions", subject, schema)["id"])

    def number_of(self, subject: str, schema: Schema) -> int:
        """The number of a schema that a subject has. SchemaError: it has not; RegistryError: no answer."""
        return int(self._post(f"/subjects/{_quoted(subject)}", subject, schema)["id"])

    def _version(self, subject: str, version: str) -> Schema:
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        schema = self._schema(self._get_or_cached(path, f"subject {subject}"))
        if schema.id is not None:
            self._by_id[schema.id] = schema
        return schema

    def _get_or_cached(self, path: str, subject: str) -> Any:  # noqa: ANN401  (what JSON has)
        kept = RegistryCache(self.cache, self.urls)
        try:
            answer = self._get(path, subject)
        except RegistryError as error:
            answer = kept.read(path) if error.status == 0 else None
            if answer is None:
                raise
            return answer
        kept.write(path, answer)
        return answer

    def _schema(self, answer: dict[str, Any]) -> Schema:
        kind = str(answer.get("schemaType", "AVRO")).lower()
        if kind not in KINDS:
            raise SchemaError(f"schema id {answer.get('id')} is of the type {kind}; there are {', '.join(KINDS)}")
        references = dict[str, str]()
        self._add_references(answer, references, 0)
        return Schema(kind, answer["schema"], answer.get("id"), tuple(references.items()))

    def _add_references(self, answer: dict[str, Any], texts: dict[str, str], depth: int) -> None:
        if depth > _MOST_REFERENCES:
            raise SchemaError(f"more than {_MOST_REFERENCES} schemas use each other in a row")
        for reference in answer.get("references") or ():
            if reference["name"] not in texts:
                path = f"/subjects/{_quoted(reference['subject'])}/versions/{int(reference['version'])}"
                used = self._get_or_cached(path, f"subject {reference['subject']}")
                self._add_references(used, texts, depth + 1)
                texts[reference["name"]] = used["schema"]

    def _get(self, path: str, subject: str) -> Any:  # noqa: ANN401
        try:
            return self._asked("GET", path, None)
        except RegistryError as error:
            if error.code in _MISSING or error.status == _NOT_FOUND:
                raise SchemaError(f"the registry {self.urls[0]} has no schema for {subject}: {error}") from None
            raise

    def _post(self, path: str, subject: str, schema: Schema) -> Any:  # noqa: ANN401
        body = {"schema": schema.text, "schemaType": schema.kind.upper()}
        if schema.kind == "avro":
            del body["schemaType"]  # The oldest registries know no other kind.
        try:
            return self._asked("POST", path, json.dumps(body).encode())
        except RegistryError as error:
            if error.status == _CONFLICT:
                raise IncompatibleSchemaError(f"the registry refuses the schema for {subject}: {error}") from None
            if error.code in _MISSING:
                raise SchemaError(f"the registry {self.urls[0]} has no such schema in {subject}: {error}") from None
            raise

    def _asked(self, method: str, path: str, body: bytes | None) -> Any:  # noqa: ANN401
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=self.login.tls()))
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        if self.login.header:
            headers["Authorization"] = self.login.header
        problem = RegistryError("there is no URL of a schema registry")
        for url in self.urls:
            request = urllib.request.Request(f"{url.rstrip('/')}{path}", body, headers, method=method)
            try:
                with opener.open(request, timeout=_TIMEOUT_S) as answer:
                    return json.loads(answer.read(_MOST_BYTES))
            except urllib.error.HTTPError as error:
                problem = _problem(method, url, path, error)
                if error.code < _SERVER_ERROR:
                    raise problem from None
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", error)
                problem = RegistryError(f"{method} {url}{path}: the schema registry has not answered: {reason}")
        raise problem


def _problem(method: str, url: str, path: str, error: urllib.error.HTTPError) -> RegistryError:
    with error:
        try:
            answer = json.loads(error.read(_MOST_BYTES))
            message, code = str(answer["message"]), int(answer.get("error_code", 0))
        except (OSError, ValueError, KeyError, TypeError):
            message, code = str(error.reason), 0
    return RegistryError(f"{method} {url}{path}: {error.code} {message}", error.code, code)


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
