"""How much tests do: less in `make test`, all of it in `make test-slow`."""

import pytest


def few_or_many(few, many):
    """Values of a parameter, or of several: small ones for the fast tests, and large ones for the slow ones."""
    return [few, pytest.param(*(many if isinstance(many, tuple) else (many,)), marks=pytest.mark.slow)]
