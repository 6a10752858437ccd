"""The pages by their paths."""

from __future__ import annotations

import logging
import re
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from pyspark_log import __version__
from pyspark_log.errors import InvalidConfigError, PylogError, UnknownGroupError, UnknownTopicError, condition_of
from pyspark_log.monitoring import Page, Request, Snapshot, Snapshots
from pyspark_log.schemas.schema import Part
from pyspark_log.storage.fs import clock
from pyspark_log.ui import bounds, plots, texts, views
from pyspark_log.ui.guard import Guard
from pyspark_log.ui.history import History
from pyspark_log.ui.looks import look
from pyspark_log.ui.looks.avro import Schemas
from pyspark_log.ui.looks.download import download
from pyspark_log.ui.looks.formats import FORMATS, Shown, shown, visible
from pyspark_log.ui.looks.found import Gap, Record
from pyspark_log.ui.looks.json_text import coloured, fields
from pyspark_log.ui.server_view import ServerView

_log = logging.getLogger(__name__)

# How many looks into topics there are at a time: each may have a large record batch in memory.
_MOST_LOOKS = 2
_HTML = "text/html; charset=utf-8"
# Nothing is loaded from elsewhere, nothing that records or topics hold is run, and no other site shows or reads a page.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STATIC = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# The templates, by the first part of a path and the number of its parts.
_PAGES = {
    ("", 1): "overview", ("topics", 1): "overview", ("topics", 2): "topic", ("topics", 3): "records",
    ("topics", 5): "record", ("groups", 1): "groups", ("publishes", 1): "publishes", ("server", 1): "server",
}  # fmt: skip
_STATUS: Sequence[tuple[type[Exception], HTTPStatus]] = (
    (UnknownTopicError, HTTPStatus.NOT_FOUND),
    (UnknownGroupError, HTTPStatus.NOT_FOUND),
    (InvalidConfigError, HTTPStatus.BAD_REQUEST),
)


class Ui:
    """The page of a store: `answer` is what an HttpServer needs. All of it only reads."""

    def __init__(
        self, snapshots: Snapshots, guard: Guard, *, schemas: Schemas | None = None, server: ServerView | None = None
    ) -> None:
        """Measures nothing yet.

        Args:
            snapshots: give the store as it is.
            guard: which requests are answered.
            schemas: those for Avro; None: those that topics name.
            server: the server of the store, in which this runs; None: there is none.
        """
        self._snapshots, self._store, self._guard, self._server = snapshots, snapshots.store, guard, server
        self._schemas, self._history = schemas or Schemas(None), History(snapshots)
        self._looks = threading.BoundedSemaphore(_MOST_LOOKS)
        folder = files("pyspark_log.ui") / "static"
        self._static = {name: (folder / name).read_bytes() for name in _STATIC}
        self._templates = Environment(
            loader=PackageLoader("pyspark_log.ui"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._templates.globals |= {
            "texts": texts, "plot": plots.plot, "bars": plots.bars,
            "small_plot": plots.small_plot, "smooth": plots.smooth,
            "visible": visible, "topic_url": look.topic_url, "rest_of": look.rest_of, "bounds": bounds,
            "quoted": lambda text: shlex.quote(visible(text)), "coloured": coloured, "FORMATS": FORMATS,
            "store": self._store.path, "version": __version__,
        }  # fmt: skip
        self._templates.tests["record"] = lambda row: isinstance(row, Record)

    def start(self) -> None:
        """Begins to measure."""
        self._history.start()

    def close(self) -> None:
        """Ends that."""
        self._history.close()

    def answer(self, request: Request) -> Page:
        """The page of a request."""
        refusal = self._guard.refusal(request)
        page = self._answer(request) if refusal is None else refusal
        return page._replace(headers={**_HEADERS, **page.headers})

    def _answer(self, request: Request) -> Page:
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if parts[0] == "static" and len(parts) == 2 and parts[1] in _STATIC:
            # The address has the version in it.
            return Page(
                self._static[parts[1]], content_type=_STATIC[parts[1]], headers={"Cache-Control": "max-age=86400"}
            )
        try:
            made = self._page(parts, query)
        except (PylogError, OSError) as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), HTTPStatus.SERVICE_UNAVAILABLE)
            return self._problem(status, str(error), condition_of(error), query)
        return made or self._problem(HTTPStatus.NOT_FOUND, f"there is no page {request.path}", "", query)

    def _page(self, parts: list[str], query: dict[str, str]) -> Page | None:
        name = _PAGES.get((parts[0], len(parts)))
        if name == "groups" and "group" in query:
            name = "group"
        if name is None or (len(parts) > 2 and parts[2] != "records"):
            return None
        now = clock.now_ms()
        if name == "records":  # without figures of the store, which take longer: "Live" asks each second
            return self._records(parts[1], query, now)
        if name == "record":
            return self._record(parts[1], parts[3], parts[4], query, now)
        snapshot = self._snapshots.current()
        if snapshot.problem:
            return self._problem(HTTPStatus.SERVICE_UNAVAILABLE, snapshot.problem, "", query)
        self._history.note(snapshot)
        context = self._context(name, parts, query, snapshot)
        return self._made(name, HTTPStatus.OK, query, {**context, "snapshot": snapshot, "now": now})

    def _context(self, name: str, parts: list[str], query: dict[str, str], snapshot: Snapshot) -> dict[str, Any]:
        """What the template of a page with figures is given."""
        store, history = self._store, self._history
        contexts: Mapping[str, Callable[[], dict[str, Any]]] = {
            "overview": lambda: views.overview(snapshot, history, query),
            "topic": lambda: views.topic(store, snapshot, history, parts[1], query),
            "groups": lambda: views.groups(snapshot, history, query),
            "group": lambda: views.group(store, snapshot, history, query["group"], query),
            "publishes": lambda: views.publishes(snapshot, query),
            "server": lambda: {"state": None if self._server is None else self._server.state()},
        }
        return contexts[name]()

    def _records(self, topic: str, query: dict[str, str], now: int) -> Page:
        wanted = look.Wanted.of(query)
        with self._looks:
            found, wanted, partitions = look.looked(self._store, topic, wanted, now)
        if "download" in query:
            return download(topic, found.records)

        configs = self._configs(topic)

        def show(data: bytes | None, size: int, part: Part) -> Shown:
            return shown(data, size, wanted.form, self._schemas.of_topic(topic, part, configs))

        def cells(row: Record | Gap) -> tuple[Record | Gap, Shown | None, Shown | None, dict[str, str]]:
            if isinstance(row, Gap):
                return row, None, None, {}
            key, value = show(row.key, row.key_size, "key"), show(row.value, row.value_size, "value")
            is_split = wanted.columns and value.kind in ("json", "avro")
            return row, key, value, fields(value.text) if is_split else {}

        rows = [cells(row) for row in found.rows]
        columns = [*dict.fromkeys(name for *_, own in rows for name in own)]
        if len(columns) > bounds.MOST_COLUMNS:
            found.notes.append(f"These values have {len(columns)} fields: the first {bounds.MOST_COLUMNS} are shown.")
        return self._made("records", HTTPStatus.OK, query, {
            "topic": topic, "look": found, "rows": rows, "wanted": wanted, "partitions": partitions, "now": now,
            "columns": columns[: bounds.MOST_COLUMNS], "snapshot": None,
            "pattern": ("(?i)" if wanted.is_any_case else "") + re.escape(wanted.text or "TEXT"),
        })  # fmt: skip

    def _record(self, topic: str, partition: str, offset: str, query: dict[str, str], now: int) -> Page:
        form = look.Wanted.of({"format": query.get("format", "auto")}).form
        with self._looks:
            found = look.one_record(self._store, topic, partition, offset)
        if "download" in query:
            return download(topic, [found.record] if found.record and found.record.offset == int(offset) else [])

        configs = self._configs(topic)

        def show(part: Part) -> object:
            assert found.record is not None
            one = found.record
            data, size = (one.key, one.key_size) if part == "key" else (one.value, one.value_size)
            return shown(data, size, form, self._schemas.of_topic(topic, part, configs), is_laid_out=True)

        def show_header(value: bytes | None) -> object:
            most = bounds.HEADER_BYTES
            return shown(value and value[:most], len(value or b""), form, self._schemas.of_topic(topic, None, {}))

        return self._made("record", HTTPStatus.OK, query, {
            "topic": topic, "partition": int(partition), "offset": int(offset), "found": found, "form": form,
            "show": show, "show_header": show_header, "now": now, "snapshot": None,
        })  # fmt: skip

    def _configs(self, topic: str) -> dict[str, str]:
        return {**self._store.configs, **self._store.describe_topic(topic).configs}

    def _problem(self, status: HTTPStatus, why: str, condition: str, query: dict[str, str]) -> Page:
        context = {"status": status, "why": why, "condition": condition, "snapshot": None, "now": clock.now_ms()}
        return self._made("problem", status, query, context)

    def _made(self, name: str, status: HTTPStatus, query: dict[str, str], context: dict[str, Any]) -> Page:
        def with_query(**changes: object) -> str:
            """This page with another query."""
            changed = {key: value for key, value in {**query, **changes}.items() if value not in (None, "")}
            return "?" + urlencode(changed)

        template = self._templates.get_template(f"{name}.html")
        text = template.render({**context, "page": name, "query": query, "with_query": with_query})
        return Page(text.encode(errors="replace"), status, _HTML)
