"""Records the sessions of sessions.py at a real Kafka: `python -m tests.recordings.make [NAME...]`."""

import gc
import sys
import tempfile
import warnings
from pathlib import Path

from tests.kafka.kafka_tools import missing, running_broker
from tests.recordings.events import Recording, path_of
from tests.recordings.place import Place
from tests.recordings.recorder import Recorder
from tests.recordings.sessions import SESSIONS
from tests.recordings.timeless import SETTINGS


def main(names):
    """Records the sessions of these names, all without any."""
    unknown = set(names) - SESSIONS.keys()
    if unknown or missing():
        sys.exit(missing() or f"no such sessions: {sorted(unknown)}")
    warnings.simplefilter("ignore", ResourceWarning)
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            **SETTINGS,
            "advertised.listeners": f"PLAINTEXT://{recorder.bootstrap}",
            # A smaller one would be described.
            "log.index.size.max.bytes": None,
        }
        with running_broker(folder, settings=settings) as broker:
            broker.prepare(transactions=False)
            place = Place(recorder, broker, Path(folder))
            for name in names or SESSIONS:
                session = SESSIONS[name]
                recorder.begin(broker.port)
                session.run(place)
                gc.collect()  # some clients close their connections only then
                Recording({"client": session.client, "broker": "Apache Kafka 4.3.1"}, recorder.end()).save(name)
                place.empty()
                print(f"{name}: {path_of(name).stat().st_size} bytes", flush=True)
    recorder.close()


if __name__ == "__main__":
    main(sys.argv[1:])
