"""Names of clients: subjects of certificates as Java writes them, and Kafka's rules for them."""

import ssl

import pytest
from cryptography import x509

from pyspark_log.errors import InvalidConfigError
from pyspark_log.server.security.principals import PrincipalRules, subject
from tests.security_tools import Authority, name

_ANNA = "CN=Anna,OU=ServiceUsers,O=Example,C=PL"


@pytest.mark.parametrize(("rules", "whose", "expected"), [
    ("DEFAULT", _ANNA, _ANNA),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", _ANNA, "Anna"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", _ANNA, "anna"),
    ("RULE:CN=(.*?),OU=(.*?),O=(.*?),C=(.*)/$1@$2.$4/U", _ANNA, "ANNA@SERVICEUSERS.PL"),
    ("RULE:CN=(.*?),OU=Other.*/$1/,RULE:CN=(.*?),.*/second $1/", _ANNA, "second Anna"),
    ("RULE:CN=(.*?),OU=Other.*/$1/ , DEFAULT", _ANNA, _ANNA),
    ("RULE:CN=(.*?),OU=Other.*/$1/", _ANNA, None),
    ("RULE:CN=Anna/$0/", _ANNA, None),  # the whole subject has to fit
    (r"RULE:CN=(a\/b),.*/$1\/x/", "CN=a/b,C=PL", "a/b/x"),
    (r"RULE:CN=(x)?.*/[$1]/", _ANNA, "[]"),
    ("RULE:.*/fixed/", _ANNA, "fixed"),
])  # fmt: skip
def test_the_first_rule_that_fits(rules, whose, expected):
    assert PrincipalRules(rules).name(whose) == expected


@pytest.mark.parametrize(
    "rules", ["nonsense", "RULE:a/b", "RULE:a/b/X", "DEFAULT,x", "RULE:(/x/", "RULE:a/$1/", "default"]
)
def test_what_is_no_rule(rules):
    with pytest.raises(InvalidConfigError, match="rules for principals"):
        PrincipalRules(rules)


def _subject(folder, **parts):
    certificate, _ = Authority(folder).issue("one", name(**parts))
    text = certificate.read_text()
    return subject(ssl.PEM_cert_to_DER_cert(text)), x509.load_pem_x509_certificate(text.encode())


def test_a_subject_begins_with_its_innermost_part(tmp_path):
    shown, found = _subject(tmp_path, C="PL", ST="Mazowsze", L="Warszawa", O="Example", OU="Dział", CN="Anna")
    assert shown == "CN=Anna,OU=Dział,O=Example,L=Warszawa,ST=Mazowsze,C=PL" == found.subject.rfc4514_string()


def test_special_characters_of_a_subject(tmp_path):
    shown, _ = _subject(tmp_path, O=' a, b+c="d"<e>;\\f ', CN="#x")
    assert shown == r"CN=\#x,O=\ a\, b\+c\=\"d\"\<e\>\;\\f\ "


def test_a_part_without_a_short_name_is_hexadecimal(tmp_path):
    """As Java's X500Principal.getName(), and so Kafka."""
    shown, _ = _subject(tmp_path, CN="a", emailAddress="a@x")
    assert shown == "1.2.840.113549.1.9.1=#1603614078,CN=a"
