"""Three servers of one store in place of one, wherever tests serve a new store: `PYLOG_SERVERS=folder`, or `objects`.

By hand, for tests of clients: they find the others by the first. It is not for tests of one server's own answers, files
or log.
"""

import contextlib
import os

from pyspark_log import Store
from tests.object_server import moto

KIND = os.environ.get("PYLOG_SERVERS")
COUNT = 3


@contextlib.contextmanager
def several(folder, options, kind, topics):
    """The first of the servers; they are stopped at the end of the block."""
    with contextlib.ExitStack() as all_:
        path = folder / "store"
        if KIND == "objects":
            objects = all_.enter_context(moto(folder))
            os.environ.update(objects.environment)
            path = f"s3://{objects.bucket}/store"
        with Store.create(path) as store:
            for topic in topics:
                store.create_topic(topic, 1)
        servers = []
        for number in range(1, COUNT + 1):
            (folder / str(number)).mkdir()
            server = kind(path, folder / str(number), "--shared", "--node-id", number, "--verbose", *options)
            all_.callback(server.kill)
            servers.append(server.start())
        yield servers[0]
        for server in servers:
            assert server.stop() == 0, server.output()
            assert "Traceback" not in server.output(), server.output()
