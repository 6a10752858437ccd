"""How much tests do: less in `make test`, all of it in `make test-slow`."""

import pytest


def few_or_many(few, many):
    """Values of a parameter, or of several: small ones for the fast tests, and large ones for the slow ones."""
    return [few, pytest.param(*(many if isinstance(many, tuple) else (many,)), marks=pytest.mark.slow)]


def one_in(step, cases):
    """Values of a parameter: the first, each that is a multiple of `step` after it, and, as long tests, all others."""
    return [case if number % step == 0 else _long(case) for number, case in enumerate(cases)]


def _long(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=[pytest.mark.slow, pytest.mark.long])
