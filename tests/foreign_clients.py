"""What kafka-python's clients do in the background fails no test, as it would be whichever one runs then.

A client of it that is closed while it connects or sends drops the socket, which is collected at any later time. Python
warns then, and a warning fails a test. A client that is open, as that of a session's fixture is, connects again at any
time, and draws which server and when: Hypothesis fails a test in which something else uses Python's own generator.
"""

import random
import socket
import ssl
import sys
import types
import warnings

# Loading its protocol's schemas uses a call that newer Pythons warn about.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.net
    from kafka.net.transport import KafkaSSLTransport

    assert kafka.net


class _Socket(socket.socket):
    def __del__(self):
        self.close()


class _TlsSocket(ssl.SSLSocket):
    def __del__(self):
        self.close()


def close_dropped_sockets():
    """From now on the sockets of kafka-python close themselves when they are dropped; all others still warn."""

    def pair():
        return tuple(_Socket(fileno=one.detach()) for one in socket.socketpair())

    def context(config):
        made = context_of(config)
        made.sslsocket_class = _TlsSocket
        return made

    _replace(socket, types.SimpleNamespace(**{**vars(socket), "socket": _Socket, "socketpair": pair}))
    context_of = KafkaSSLTransport._build_ssl_context
    KafkaSSLTransport._build_ssl_context = staticmethod(context)


def draw_apart():
    """From now on kafka-python draws from a generator of its own."""
    _replace(random, random.Random())


def _replace(module, own):
    """Gives the modules of kafka-python something of their own in place of a module that they use."""
    for name, user in list(sys.modules.items()):
        if name.startswith("kafka.") and getattr(user, module.__name__, None) is module:
            setattr(user, module.__name__, own)
