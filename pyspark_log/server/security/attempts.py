"""How fast one address may guess passwords: not at all slower at first, and slowly after some failures."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

# So many attempts of an address may fail in a row; then each waits until the one before it is as long ago (s).
_FREE, _PAUSE = 10, 0.2
# A failure counts for as long, and one that would have to wait longer than the other is refused; in seconds.
_MEMORY, _LONGEST = 60.0, 10.0
# Addresses that are remembered. A client has 2**64 of IPv6, so a network of these counts as one.
_MOST, _NETWORK = 10_000, 64


@dataclass
class _Address:
    """What is known of an address.

    Attributes:
        failures: attempts that failed, or are not decided.
        forgotten: when they do not count any more.
        next: when the next attempt may begin.
    """

    failures: int = 0
    forgotten: float = 0.0
    next: float = 0.0


class Attempts:
    """Counts attempts to authenticate, by address."""

    def __init__(self) -> None:
        """None yet."""
        self._addresses: dict[str, _Address] = {}

    def begin(self, host: str, now: float) -> float | None:
        """Counts an attempt that begins, as one that failed; returns how long it has to wait (s).

        None: it is to be refused without a look at it.
        """
        known = self._addresses.pop(_address(host), None)
        if known is None or known.forgotten < now:
            known = _Address()
        if known.failures >= _FREE:
            wait = max(known.next - now, 0)
            if wait > _LONGEST:
                self._addresses[_address(host)] = known
                return None
            known.next = now + wait + _PAUSE
        else:
            wait = 0
        known.failures += 1
        known.forgotten = now + wait + _MEMORY
        # The one that was not heard of for longest comes first.
        self._addresses[_address(host)] = known
        if len(self._addresses) > _MOST:
            del self._addresses[next(iter(self._addresses))]
        return wait

    def succeeded(self, host: str) -> None:
        """An attempt was none of those that fail. Others are not forgotten: a client may have one password already."""
        known = self._addresses.get(_address(host))
        if known is not None:
            known.failures = max(known.failures - 1, 0)


def _address(host: str) -> str:
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], _NETWORK), strict=False))
