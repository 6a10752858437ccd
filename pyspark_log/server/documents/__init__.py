"""The users, rights and quotas of a store's servers: documents, each of which changes as a whole."""

from pyspark_log.server.documents.followed import Documents, Followed

__all__ = ["Documents", "Followed"]
