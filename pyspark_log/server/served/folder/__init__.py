"""A store in a folder, as it is served."""

from pyspark_log.server.served.folder.logs import FolderLogs, SharedFolderLogs

__all__ = ["FolderLogs", "SharedFolderLogs"]
