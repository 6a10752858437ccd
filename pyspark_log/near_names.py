"""What an unknown name may be a misspelling of."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to the error about an unknown name: "; did you mean 'words'?", or "" if none is near."""
    import difflib  # noqa: PLC0415  (few errors need it)

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_edit_apart(name: str, other: str) -> bool:
    """Whether the names differ in one letter, which is another, missing, too much, or swapped with the next."""
    begin = next((at for at, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), None)
    if begin is None:
        return abs(len(name) - len(other)) == 1
    rest, its = name[begin:], other[begin:]
    swapped = rest[1:2] + rest[:1] + rest[2:]
    return rest[1:] == its[1:] or rest[1:] == its or rest == its[1:] or swapped == its
