"""The quotas of clients: in a document of a store, or elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pyspark_log.errors import InvalidConfigError
from pyspark_log.server.documents import Documents, Followed
from pyspark_log.server.quotas.entities import KINDS, Entity, Quotas, check_entity, check_quota
from pyspark_log.server.quotas.table import Table
from pyspark_log.storage.catalog.store_json import QUOTAS_FILE
from pyspark_log.storage.fs.json_fields import Fields

_VERSION = 1


class ClientQuotas:
    """The quotas of a store, or of a cluster; safe to use from several threads. Each change of them counts at once."""

    def __init__(self, documents: Documents, source: Followed[Table] | None = None) -> None:
        """Those among the documents of a store; `source`: has them in place of these."""
        self._source: Followed[Table] = source or documents.followed(
            QUOTAS_FILE, "list of quotas", Table({}), _decoded, _encoded
        )

    def table(self) -> Table:
        """The quotas as they are now; the same object until they change. PylogError, OSError: they cannot be read."""
        return self._source.content()

    def change(self, make: Callable[[Quotas], Quotas]) -> None:
        """Replaces the quotas by what `make` makes of them; an entity without any is left out.

        Raises:
            PylogError, OSError: as of Followed.
        """
        self._source.change(
            lambda table: Table({entity: values for entity, values in make(table.quotas).items() if values})
        )


def _encoded(table: Table) -> bytes:
    quotas = [
        {"entity": dict(entity.parts()), "values": dict(sorted(values.items()))}
        for entity, values in sorted(table.quotas.items(), key=lambda one: list(one[0].parts()))
    ]
    return json.dumps({"version": _VERSION, "quotas": quotas}, indent=2).encode() + b"\n"


def _decoded(data: bytes) -> Table:
    content = Fields.parse(data)
    content.check_version(_VERSION, "the list of quotas")
    quotas = {}
    for one in content.list("quotas"):
        fields = Fields(one)
        parts = fields.texts("entity")
        if not parts.keys() <= set(KINDS):
            raise ValueError(f"'entity' has other parts than {', '.join(KINDS)}")
        entity = Entity(*(parts.get(kind) for kind in KINDS))
        quotas[entity] = _checked(entity, fields.numbers("values"))
    return Table(quotas)


def _checked(entity: Entity, values: Mapping[str, float]) -> Mapping[str, float]:
    try:
        check_entity(entity)
        for name, value in values.items():
            check_quota(entity, name, value)
    except InvalidConfigError as error:
        raise ValueError(str(error)) from None
    return values
