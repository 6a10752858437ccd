"""The page of a store, `pylog ui`: what there is, how it changes, and looks into topics. All of it only reads.

It needs Jinja2 (the extra `ui`), and so is loaded only where it is asked for.
"""

from pyspark_log.ui.app import Ui
from pyspark_log.ui.bounds import MOST_ROWS
from pyspark_log.ui.guard import Guard
from pyspark_log.ui.looks.avro import Schemas
from pyspark_log.ui.server_view import ClientView, HeldBack, ServerState, ServerView, TransactionView

__all__ = [
    "MOST_ROWS", "ClientView", "Guard", "HeldBack", "Schemas", "ServerState", "ServerView", "TransactionView", "Ui",
]  # fmt: skip
