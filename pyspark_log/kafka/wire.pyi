from typing import Any, TypeAlias

KINDS: dict[str, int]

class Plan:
    struct: Any
    def __init__(
        self, struct: Any, inline: list[Any], tagged: list[Any], refused: list[int], flexible: bool
    ) -> None: ...

class FileRange:
    file: Any
    position: int
    length: int
    def __init__(self, file: Any, position: int, length: int) -> None: ...
    def __len__(self) -> int: ...

# Bytes, or what was given as large records.
Chunk: TypeAlias = Any

# `buffer`: any contiguous bytes-like object.
def decode(plan: Plan, buffer: Any, position: int) -> tuple[Any, int]: ...
def encode(header: Plan | None, first: Any, plan: Plan, value: Any) -> list[Chunk]: ...
