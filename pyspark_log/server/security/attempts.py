"""How fast one address may guess passwords: as fast as others at first, and slowly after some failures."""

from __future__ import annotations

import ipaddress
from collections import deque
from dataclasses import dataclass, field

from pyspark_log.server.network import Loop, Wait

# So many attempts of an address are looked at together, until so many have failed in a row.
_TOGETHER, _FREE = 10, 10
# Then one after the other, with a pause after each that fails; in seconds.
_PAUSE = 0.2
# After as long a failure does not count any more, in seconds.
_MEMORY = 60.0
# Addresses that are remembered. A client has 2**64 of IPv6, so a network of these counts as one.
_MOST, _NETWORK = 10_000, 64


@dataclass
class Address:
    """What is known of an address, for `Attempts` alone.

    Attributes:
        running: attempts that are looked at now.
        waiting: those that wait for their turn.
        failures: those that failed since they were forgotten last.
        forgotten: when these do not count any more.
        is_pausing: whether the next one has to wait for the end of a pause.
    """

    running: int = 0
    waiting: deque[Wait[None]] = field(default_factory=deque)
    failures: int = 0
    forgotten: float = 0.0
    is_pausing: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether it must not be dropped."""
        return bool(self.running or self.waiting or self.is_pausing)


class Attempts:
    """Gives attempts of authentication their turn, by address. All calls come from the loop's thread."""

    def __init__(self, loop: Loop) -> None:
        """None yet."""
        self._loop = loop
        self._addresses: dict[str, Address] = {}

    async def turn(self, host: str) -> Address:
        """Waits until an attempt of an address may be looked at, which `end` ends. Awaits only `Wait`s."""
        known = self._of(host)
        if known.waiting or not self._may_begin(known):
            wait: Wait[None] = Wait()
            known.waiting.append(wait)
            try:
                await wait
            except GeneratorExit:
                # The client has left.
                if wait in known.waiting:
                    known.waiting.remove(wait)
                else:
                    self.end(known, failed=False)
                raise
        else:
            known.running += 1
        return known

    def end(self, known: Address, *, failed: bool) -> None:
        """Ends an attempt that had its turn."""
        known.running -= 1
        if failed:
            known.failures += 1
            known.forgotten = self._loop.time() + _MEMORY
            if known.failures >= _FREE and not known.is_pausing:
                known.is_pausing = True
                self._loop.call_later(_PAUSE, self._resume, known)
        self._begin_next(known)

    def slowed(self) -> list[str]:
        """The addresses whose attempts are looked at one after the other."""
        now = self._loop.time()
        return [one for one, known in self._addresses.items() if known.failures >= _FREE and known.forgotten >= now]

    def _of(self, host: str) -> Address:
        address = _address(host)
        known = self._addresses.pop(address, None) or Address()
        # The one that was not heard of for longest comes first.
        self._addresses[address] = known
        if len(self._addresses) > _MOST:
            idle = next((one for one, found in self._addresses.items() if not found.is_busy), None)
            if idle is not None and idle != address:
                del self._addresses[idle]
        return known

    def _may_begin(self, known: Address) -> bool:
        if known.forgotten < self._loop.time():
            known.failures = 0
        return not known.is_pausing and known.running < (_TOGETHER if known.failures < _FREE else 1)

    def _resume(self, known: Address) -> None:
        known.is_pausing = False
        self._begin_next(known)

    def _begin_next(self, known: Address) -> None:
        while known.waiting and self._may_begin(known):
            known.running += 1
            known.waiting.popleft().finish(None)


def _address(host: str) -> str:
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], _NETWORK), strict=False))
