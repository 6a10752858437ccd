"""A program that reads, transforms and writes in transactions is stopped at each of its changes to files, or the power
fails there.

Whichever process comes next, and whatever it does first: in the end each record of the source is in the sink once, in
order, and the group's committed offset is at the source's end. The process that was stopped may come back then, and
can change nothing.
"""

import contextlib

from attacks import Attacked
from copying import GROUP, RECORDS, SOURCE, STEP, Worker, committed_offset, make_store, sink
from sampling import SAMPLED

from pyspark_log.errors import OffsetConflictError, OutcomeUnknownError, PublisherFencedError, TransactionStateError
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.recovery import set_aside, waiting
from pyspark_log.storage.store import Store

pytestmark = SAMPLED


class TestTransactions(Attacked):
    """The next process is any of the `comers`; after a power loss, a reader or a worker."""

    comers = "same_id", "another_id", "reader", "by_hand", "cleaner", "gives_up", "itself"
    # Three fates besides nothing and everything, as there are few changes.
    parts = 3

    def make(self, path):
        make_store(path)

    def run(self, path):
        self.worker = Worker(path, "worker", self.trace.mark if self.trace else lambda _: None)
        self.worker.run()

    def check_whole(self, path):
        assert sink(path) == [list(range(RECORDS))] * 2

    def check(self, path):
        """The process may have been stopped only, and comes back."""
        come_back(self.worker.transaction)
        self.check_end(path)

    def check_end(self, path):
        help_apply(Store.open(path).decisions)
        assert sink(path) == [list(range(RECORDS))] * 2
        assert committed_offset(path) == RECORDS

    def check_left(self, path, count, number):
        """What was committed is there, and the sink holds what the committed offset says, no more and no less."""
        checker = ("reader", "worker", "another")[(count + number) % 3]
        if checker == "reader":
            help_apply(Store.open(path).decisions)
            reached = committed_offset(path)
            assert sink(path) == [list(range(reached))] * 2
            assert reached >= max([end for at, end in self.trace.marks if at <= count], default=0)
        Worker(path, checker).run()
        self.check_end(path)

    # ---- the next process

    def same_id(self, path):
        Worker(path, "worker").run()
        self.check(path)

    def another_id(self, path):
        Worker(path, "another").run()
        self.check(path)

    def reader(self, path):
        help_apply(Store.open(path).decisions)
        seen = sink(path)
        assert seen[0] == seen[1] == list(range(len(seen[0])))
        assert len(seen[0]) % STEP == 0
        self.another_id(path)

    def by_hand(self, path):
        """Commits what it finds, and what is there of it already must stay so."""
        log = OffsetsLog(Store.open(path))
        found = log.fetch(GROUP)
        if found:
            log.commit(GROUP, {SOURCE: found[SOURCE].offset})
        help_apply(Store.open(path).decisions)
        assert log.fetch(GROUP).keys() == found.keys()
        assert all(log.fetch(GROUP)[at].offset == found[at].offset for at in found)
        self.same_id(path)

    def cleaner(self, path):
        janitor.clean(Store.open(path))
        self.another_id(path)

    def gives_up(self, path):
        """Sets aside what waits and no partition has anything of, also of what a killed one has begun."""
        store = Store.open(path)
        for one in waiting(store.decisions):
            if not any(has(store, place, one.decision) for place in one.decision.places):
                assert set_aside(store.decisions, one.decision.offset).is_revoked
        self.same_id(path)

    def itself(self, path):
        """The commit was only slow: it is asked for again, by the very object."""
        transaction = self.worker.transaction
        if transaction is not None:
            try:
                transaction.commit()
            except TransactionStateError:
                assert transaction.ended
        self.same_id(path)


def has(store, place, decision):
    with store.logs.writer(place.topic, place.partition).hold() as held:
        return held.state.applied >= decision.offset


def come_back(zombie):
    """It continues where it was, and can change nothing."""
    if zombie is None or zombie.ended:
        return
    with contextlib.suppress(PublisherFencedError, OffsetConflictError, TransactionStateError):
        try:
            assert zombie.commit().replayed
        except OutcomeUnknownError as error:
            # It was stopped in a commit, and cannot ask any more what became of that.
            assert isinstance(error.__cause__, PublisherFencedError)  # noqa: PT017
