"""Leader epochs, as a controller assigns them: no writer of a single copy begins one."""

from pyspark_log.storage.log import leader_epochs


def lead(held, epoch):
    """A leader takes over a partition, whose lock is held, in an epoch."""
    leader_epochs.begin(held.log.place.folder, epoch, held.state.next_offset)
    held.log.lease.save(held.state._replace(leader_epoch=epoch), durable=True)
