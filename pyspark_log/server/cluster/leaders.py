"""Where the leader of the controllers is, as far as their answers say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark_log.server.cluster.requests import Address

_NO_NODE = -1


class Leaders:
    """What is known of the controllers.

    Attributes:
        epoch: the newest epoch of a leader that was heard of.
        leader: the leader of that epoch; None: it is not known, or does not answer.
    """

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        """`bootstrap`: some controllers."""
        self.epoch = 0
        self.leader: Address | None = None
        self._addresses = list(bootstrap)
        self._nodes: dict[int, Address] = {}
        self._turn = 0
        self._named = (0, _NO_NODE)  # the newest epoch with a leader that was named, and that

    def next_address(self) -> Address:
        """The leader; or, if it is not known, one of the controllers, each in turn."""
        return self.leader or self._addresses[self._turn % len(self._addresses)]

    def learn(self, epoch: int, leader: int, nodes: Mapping[int, Address]) -> bool:
        """Takes what an answer says: an epoch, its leader (-1: none yet), and where nodes are.

        Returns:
            Whether a leader is known by that which was not known before.
        """
        self._nodes.update(nodes)
        self.know(nodes.values())
        if epoch > self.epoch:
            self.epoch, self.leader = epoch, None
        if epoch < self.epoch or leader not in self._nodes:
            return False
        self.leader = self._nodes[leader]
        is_new = self._named != (epoch, leader)
        self._named = epoch, leader
        return is_new

    def know(self, addresses: Iterable[Address]) -> None:
        """Takes where controllers are."""
        self._addresses += [one for one in addresses if one not in self._addresses]

    def confirm(self, address: Address) -> None:
        """Takes that a controller has answered as the leader of the epoch."""
        self.leader = address

    def doubt(self, address: Address) -> None:
        """Takes that a controller is not of use now: another one is next, if there is one."""
        self.leader = None
        self._turn += 1
        if self.next_address() == address:
            self._turn += 1
