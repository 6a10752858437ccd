"""A schema registry for tests, with the part of Confluent's API that clients use; in this process, in memory.

Only answers matter where it is used. It refuses a schema that a test names, and knows no rules of compatibility.
"""

import base64
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class RegistryServer:
    """Its URL, its subjects, and what it was asked."""

    def __init__(self, port, login):
        self.url = f"http://127.0.0.1:{port}"
        self.login = login
        self.schemas = []  # id 1 is the first
        self.subjects = {}  # of ids, from the oldest
        self.asked = []
        self.refused = set()
        self.lock = threading.Lock()

    def register(self, subject, schema, kind="AVRO", references=()):
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = list(references)
        with self.lock:
            if body not in self.schemas:
                self.schemas.append(body)
            number = self.schemas.index(body) + 1
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def version(self, subject, version):
        number = self.subjects[subject][-1 if version == "latest" else int(version) - 1]
        at = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": at, "id": number, **self.schemas[number - 1]}


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self):
        self._answer(self._get)

    def do_POST(self):
        self._answer(self._post)

    def _answer(self, of):
        path = unquote(self.path.partition("?")[0])
        registry = self.server.registry
        registry.asked.append(f"{self.command} {path}")
        if registry.login:
            expected = f"Basic {base64.b64encode(registry.login.encode()).decode()}"
            if self.headers.get("Authorization") != expected:
                self._send(401, {"error_code": 401, "message": "User cannot access the resource."})
                return
        self._send(*of(registry, path))

    def _get(self, registry, path):
        try:
            if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
                return 200, registry.schemas[int(match[1]) - 1]
            if match := re.fullmatch(r"/subjects/(.+)/versions/(\w+)", path):
                return 200, registry.version(match[1], match[2])
            if match := re.fullmatch(r"/subjects/(.+)/versions", path):
                return 200, list(range(1, len(registry.subjects[match[1]]) + 1))
        except (KeyError, IndexError):
            pass
        code = 40403 if path.startswith("/schemas") else 40401
        return 404, {"error_code": code, "message": "not found"}

    def _post(self, registry, path):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match = re.fullmatch(r"/subjects/(.+?)(/versions)?", path)
        schema = {
            name: value for name, value in body.items() if name in ("schema", "schemaType", "references") and value
        }
        if schema.get("schemaType") == "AVRO":
            del schema["schemaType"]
        if match[2]:
            if schema["schema"] in registry.refused:
                return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
            kind = schema.get("schemaType", "AVRO")
            return 200, {"id": registry.register(match[1], schema["schema"], kind, schema.get("references", ()))}
        known = registry.subjects.get(match[1], [])
        number = next((one for one in known if registry.schemas[one - 1] == schema), None)
        if number is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, registry.version(match[1], str(known.index(number) + 1))

    def _send(self, status, answer):
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: RegistryServer


@contextmanager
def registry_server(login=""):
    """A registry until the block ends; `login`: "user:password" that it asks for."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.registry = RegistryServer(server.server_address[1], login)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
