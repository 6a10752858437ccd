"""What tests of a secured server need: authorities, certificates and keys, users, and a client that speaks TLS."""

import contextlib
import datetime
import ipaddress
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scramp import ScramClient

from pyspark_log.kafka import messages as m
from pyspark_log.server.security.users import Users, make_credential
from tests.documents import documents_at
from tests.server_tools import PATIENCE, Peer, Server, make_store, served

#: The users of `add_users`, with their passwords.
PASSWORDS = {"anna": "correct horse battery", "bert": "zażółć, gęślą=jaźń"}

_NAMES = {
    "CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME, "ST": NameOID.STATE_OR_PROVINCE_NAME, "L": NameOID.LOCALITY_NAME,
    "emailAddress": NameOID.EMAIL_ADDRESS, "DC": NameOID.DOMAIN_COMPONENT,
}  # fmt: skip
_DAY = datetime.timedelta(days=1)


def name(**parts):
    """A subject; the parts from the outermost on."""
    return x509.Name([x509.NameAttribute(_NAMES[part], value) for part, value in parts.items()])


class Authority:
    """Issues certificates, into files of a folder.

    Attributes:
        certificate: the file of its own.
    """

    def __init__(self, folder, called="authority"):
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._subject = name(CN=called)
        self.certificate = folder / f"{called}.pem"
        self.certificate.write_bytes(_pem(self._signed(self._subject, self._key, is_authority=True)))

    def issue(self, file, subject, *, days=30, password=None):
        """Issues a certificate; its file, and that of its key. Of negative days: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, key_file = self._folder / f"{file}.pem", self._folder / f"{file}.key"
        certificate.write_bytes(_pem(self._signed(subject, key, days)))
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        key_file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return certificate, key_file

    def issue_as_one(self, file, subject):
        """Issues a certificate; a file of its own with the key and the certificate, as Kafka wants them."""
        certificate, key = self.issue(file, subject)
        both = self._folder / f"{file}-both.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        return both

    def _signed(self, subject, key, days=30, *, is_authority=False):
        now = datetime.datetime.now(datetime.UTC)
        places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 100 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(places), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def context(self, certificate=None, key=None):
        """A client's side of TLS that trusts this authority, with a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def tls_options(certificate, key):
    """The options of a server with that certificate."""
    return "--tls-certificate", certificate, "--tls-key", key


def add_users(path, passwords=PASSWORDS):
    """Adds users with passwords to a store."""
    users = Users(documents_at(path))
    for user, password in passwords.items():
        users.change({user: {one: make_credential(one, password) for one in ("SCRAM-SHA-256", "SCRAM-SHA-512")}})
    return users


@contextlib.contextmanager
def served_with_users(folder, *options, kind=Server, topics=(), users=PASSWORDS):
    """A server over a new store in a folder, which has topics of one partition and users, as `served`."""
    path = make_store(folder, topics)
    add_users(path, users)
    with served(path, folder, *options, kind=kind) as server:
        yield server


class TlsPeer(Peer):
    """A connection to a server with TLS."""

    def __init__(self, server, context):
        super().__init__(server)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.settimeout(PATIENCE)


def log_in(peer, user, password, version=2):
    """Authenticates a peer by PLAIN; the last answer."""
    handshake = peer.ask(m.SaslHandshakeRequest("PLAIN"), 1)
    assert handshake.error_code == 0
    return peer.ask(m.SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), version)


def scram_log_in(peer, user, password, mechanism="SCRAM-SHA-256"):
    """Authenticates a peer by SCRAM; the last answer."""
    assert peer.ask(m.SaslHandshakeRequest(mechanism), 1).error_code == 0
    client = ScramClient([mechanism], user, password)
    first = peer.ask(m.SaslAuthenticateRequest(client.get_client_first().encode()), 2)
    if first.error_code:
        return first
    assert first.session_lifetime_ms == 0
    client.set_server_first(bytes(first.auth_bytes).decode())
    last = peer.ask(m.SaslAuthenticateRequest(client.get_client_final().encode()), 2)
    if not last.error_code:
        # The server has proved that it knows the user, too.
        client.set_server_final(bytes(last.auth_bytes).decode())
    return last
