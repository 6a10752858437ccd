"""What a node sends to the controllers in a client's name."""

from pyspark_log.kafka import decode_request
from pyspark_log.kafka import messages as m
from pyspark_log.server.node.controllers import envelope


def test_an_envelope():
    """A principal is longer than 126 bytes where it is the subject of a certificate."""
    name = "CN=anna,O=" + "x" * 240
    request = m.DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000)
    made = envelope(request, 5, "app", f"User:{name}", "10.0.0.1")
    # DefaultPrincipalData: a version, two texts with their lengths and one more (a varint), no token, no tags.
    assert made.request_principal == b"\0\0" + b"\5User" + b"\xfb\1" + name.encode() + b"\0\0"
    assert made.client_host_address == b"\x0a\0\0\1"
    header, decoded = decode_request(made.request_data)
    assert (header.request_api_version, header.client_id, decoded) == (5, "app", request)
