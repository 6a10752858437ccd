"""The first inputs of each family of `make fuzz`, half of them in `make test`; the same ones in every run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from family import Family
from fuzz import FAMILIES, family_of, feed_some

from tests.amounts import few_or_many

INPUTS = {
    "decoder": 1500,
    "cleaner": 600,
    "indexes": 250,
    "side-files": 800,
    "descriptions": 1500,
    "states": 400,
    "messages": 4000,
    "avro": 2000,
    "protobuf": 2000,
    "json": 400,
}


@pytest.mark.parametrize("part", few_or_many(2, 1))
@pytest.mark.parametrize("name", FAMILIES)
def test_any_bytes_give_a_result_or_an_error_of_the_engine(tmp_path, name, part):
    inputs = INPUTS[name] // part
    piece = feed_some(family_of(name, tmp_path), 1, 0, inputs)
    assert piece.failed is None, piece.failed.what
    assert sum(piece.counts.values()) >= inputs


def test_any_other_error_is_a_failure_with_its_input(tmp_path):
    class Failing(Family):
        def input(self, pick):
            return pick.randbytes(3)

        def feed(self, data, counts):
            counts["fed"] += 1
            if counts["fed"] == 3:
                raise KeyError(data)

    piece = feed_some(Failing(tmp_path), 1, 10, 5)
    assert (piece.counts, piece.failed.number) == (Counter(fed=3), 12)
    assert "KeyError" in piece.failed.what
    assert feed_some(Failing(Path(tmp_path)), 1, 10, 2).failed is None
