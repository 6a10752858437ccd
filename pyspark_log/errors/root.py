"""The root of all errors of the engine, and what each of them has."""

from __future__ import annotations

# How many characters of a value an error message quotes.
_MOST_QUOTED = 200


class PylogError(Exception):
    """The root of all errors of the engine."""

    condition = "PYLOG_ERROR"
    #: Whether the same call can succeed later without any repair.
    retriable = False

    def __reduce__(self) -> tuple[object, ...]:
        """A copy has the message and the attributes: a constructor, which writes the message, is not called again."""
        return _copy, (type(self), self.args, self.__dict__)


def _copy(kind: type[PylogError], arguments: tuple[object, ...], attributes: dict[str, object]) -> PylogError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


def condition_of(error: BaseException) -> str:
    """Returns the stable name of any error: PYLOG_IO_ERROR for system errors."""
    if isinstance(error, PylogError):
        return error.condition
    return "PYLOG_IO_ERROR" if isinstance(error, OSError) else PylogError.condition


def shortened(text: str) -> str:
    """A value as an error message quotes it: at most 200 characters of it, and how many it has if it is longer."""
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}... ({len(text)} characters)"
