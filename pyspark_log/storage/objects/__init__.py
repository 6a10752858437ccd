"""An object store: the six requests that the engine makes of one, whichever it is. It knows no records."""

from pyspark_log.storage.objects.address import ObjectAddress, is_address
from pyspark_log.storage.objects.objects import Objects, ObjectStatus
from pyspark_log.storage.objects.observer import Request, set_observer

__all__ = ["ObjectAddress", "ObjectStatus", "Objects", "Request", "is_address", "set_observer"]
