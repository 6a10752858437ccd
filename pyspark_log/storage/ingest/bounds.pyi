from typing import Any

# `buffer`: any contiguous buffer.
def bounds(buffer: Any, first: int, count: int) -> tuple[int, int]: ...
