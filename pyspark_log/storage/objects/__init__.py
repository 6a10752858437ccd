"""An object store: the six requests that the engine makes of one, whichever it is. It knows no records."""

from pyspark_log.storage.objects.address import ObjectAddress, by_kind
from pyspark_log.storage.objects.objects import Objects

__all__ = ["ObjectAddress", "Objects", "by_kind"]
