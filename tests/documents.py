"""The documents of a store's servers, users, ACLs and quotas, in a store of either kind."""

from pathlib import Path

from pyspark_log import Store
from pyspark_log.server.documents.in_folder import FolderDocuments
from pyspark_log.server.documents.kinds import documents_of
from pyspark_log.storage.objects import by_kind
from pyspark_log.storage.publish_log.serving.documents import Documents


def documents_at(path):
    """Those of the store at a path; a folder need not be a store yet."""
    return by_kind(str(path), folder=FolderDocuments, objects=lambda url: documents_of(Store.open(url)))(str(path))


class FolderPlace:
    """A store in a folder, whose documents are looked at as bytes."""

    def __init__(self, path):
        self.path = path

    def bytes_of(self, name):
        """A document; None: there is none."""
        path = Path(self.path, "state", name)
        return path.read_bytes() if path.exists() else None

    def write(self, name, data):
        """Has a document whatever the bytes mean."""
        Path(self.path, "state").mkdir(exist_ok=True)
        Path(self.path, "state", name).write_bytes(data)


class ObjectPlace:
    """The same in an object store."""

    def __init__(self, path):
        self.path, self.log = path, Store.open(path).log

    def bytes_of(self, name):
        """As of FolderPlace; it needs not be intact."""
        document = self.log.follow().documents.get(name)
        return None if document is None else bytes(self.log.objects.get(document.object).data)

    def write(self, name, data):
        """As of FolderPlace."""
        Documents(self.log).change(name, lambda _: data)


def place_of(path):
    """The store at a path, as one of both."""
    return by_kind(str(path), folder=FolderPlace, objects=ObjectPlace)(str(path))
