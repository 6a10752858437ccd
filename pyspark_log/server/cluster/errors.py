"""Why a node cannot be a part of its cluster any more. Each of them ends it: it must stop, and report why."""

from __future__ import annotations

from pyspark_log.errors import PylogError


class NodeError(PylogError):
    """A node cannot be a part of its cluster."""

    condition = "PYLOG_NODE"


class MetadataError(NodeError):
    """The records of the cluster's metadata contradict each other, or what was known before."""

    condition = "PYLOG_NODE_METADATA"


class UnsupportedFeatureError(NodeError):
    """The cluster has a feature, or a level of one, that this version of pyspark-log does not know."""

    condition = "PYLOG_UNSUPPORTED_FEATURE"


class RegistrationError(NodeError):
    """The controllers do not accept the node."""

    condition = "PYLOG_NODE_REGISTRATION"
