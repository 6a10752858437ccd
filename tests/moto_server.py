"""moto with one request at a time: `python -m tests.moto_server PORT`.

By itself it looks whether an object is there, and writes it in a second step; so two could win a race.
"""

import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

from tests.ports import HOST


def main():
    """Serves until it is ended."""
    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environ, start_response):
        with lock:
            return list(application(environ, start_response))

    run_simple(HOST, int(sys.argv[1]), one_at_a_time, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
