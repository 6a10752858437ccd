"""How much tests do: less in `make test`, all of it in `make test-slow`."""

import pytest


def few_or_many(few, many):
    """Values of a parameter: a small one for the fast tests, and a large one for the slow ones."""
    return [few, pytest.param(many, marks=pytest.mark.slow)]
