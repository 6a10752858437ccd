"""What a part of a request is refused with."""

from __future__ import annotations

from pyspark_log.kafka.error_codes import ErrorCode


class RefusedError(Exception):
    """A part of a request is refused.

    Attributes:
        code: for what.
    """

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
