"""Sockets that kafka-python drops without closing them fail no test, as it would be whichever one runs then.

A client of it that is closed while it connects or sends drops the socket, which is collected at any later time. Python
warns then, and a warning fails a test.
"""

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


def close_dropped():
    """From now on the sockets of kafka-python close themselves when they are dropped; all others still warn."""

    def pair():
        return tuple(_Socket(fileno=one.detach()) for one in socket.socketpair())

    def context(config):
        made = context_of(config)
        made.sslsocket_class = _TlsSocket
        return made

    ours = types.SimpleNamespace(**{**vars(socket), "socket": _Socket, "socketpair": pair})
    for name, module in list(sys.modules.items()):
        if name.startswith("kafka.net.") and getattr(module, "socket", None) is socket:
            module.socket = ours
    context_of = KafkaSSLTransport._build_ssl_context
    KafkaSSLTransport._build_ssl_context = staticmethod(context)
