"""What an unknown name may be a misspelling of."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to append to the error about an unknown name: "; did you mean 'words'?", or "" if none is near."""
    import difflib  # noqa: PLC0415  (few errors need it)

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
