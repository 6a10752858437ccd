"""Names of clients as Kafka's access rules have them; of certificates by `ssl.principal.mapping.rules`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark_log.errors import InvalidConfigError, shortened

#: The client of a connection without authentication.
ANONYMOUS = "User:ANONYMOUS"

# The kinds of names in a certificate that have a short one in RFC 2253 and in Java, by the content of their DER.
_SHORT = {
    bytes.fromhex("550403"): "CN", bytes.fromhex("550406"): "C", bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST", bytes.fromhex("550409"): "STREET", bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU", bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}  # fmt: skip
# ASN.1's kinds of text, with their encodings in Python.
_TEXTS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
_SEQUENCE, _VERSION = 0x30, 0xA0

_PART = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<name>{_PART})/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d)")


def user(name: str) -> str:
    """The principal of a user."""
    return f"User:{name}"


class PrincipalRules:
    """Names of users from the subjects of their certificates."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Reads rules in Kafka's form: `DEFAULT`, `RULE:pattern/replacement/`, the latter with L or U at its end.

        Raises:
            InvalidConfigError: they have another form.
        """
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []
        at = 0
        while at < len(rules):
            match = _RULE.match(rules, at)
            if match is None:
                raise InvalidConfigError(
                    f"rules for principals: {shortened(repr(rules[at:]))} is neither DEFAULT nor "
                    "RULE:PATTERN/REPLACEMENT/, which may have L or U at its end"
                )
            self._rules.append(None if match["default"] else _rule(match))
            at = match.end()

    def name(self, subject: str) -> str | None:
        """The name by the first rule that fits the whole subject; None: there is none."""
        for rule in self._rules:
            if rule is None:
                return subject
            pattern, replacement, case = rule
            match = pattern.fullmatch(subject)
            if match is not None:
                found = _REFERENCE.sub(lambda ref: ref[1] or match[int(ref[2])] or "", replacement)  # noqa: B023
                return found.lower() if case == "L" else found.upper() if case == "U" else found
        return None


def _rule(match: re.Match[str]) -> tuple[re.Pattern[str], str, str]:
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise InvalidConfigError(f"rules for principals: {shortened(repr(match['pattern']))}: {error}") from None
    for reference in _REFERENCE.finditer(match["name"]):
        if reference[2] and int(reference[2]) > pattern.groups:
            raise InvalidConfigError(
                f"rules for principals: {shortened(repr(match['name']))} has ${reference[2]}, and the pattern "
                f"{pattern.groups} groups"
            )
    return pattern, match["name"], match["case"]


# ---- the subject of a certificate


def subject(certificate: bytes) -> str:
    """The subject of a certificate (DER) that was checked, in the form of RFC 2253, as Java's getName() writes it."""
    _, outer = next(_elements(certificate))
    _, inner = next(_elements(outer))
    parts = [element for element in _elements(inner) if element[0] != _VERSION]
    # Serial number, algorithm, issuer, validity, subject.
    names = [
        "+".join(_shown(pair) for kind, pair in _elements(together) if kind == _SEQUENCE)
        for _, together in _elements(parts[4][1])
    ]
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of DER in a row: tag and content."""
    at = 0
    while at < len(data):
        kind, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        yield kind, data[at : at + size]
        at += size


def _shown(pair: bytes) -> str:
    """One name: its kind and its value. Where RFC 2253 has no short form of the kind, the value is hexadecimal."""
    (_, kind), (value_kind, value) = _elements(pair)
    if kind not in _SHORT or value_kind not in _TEXTS:
        return f"{_SHORT.get(kind) or _dotted(kind)}=#{pair[2 + len(kind) :].hex()}"
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", value.decode(_TEXTS[value_kind], "replace"))
    text = re.sub(r"^ +| +$", lambda blanks: r"\ " * len(blanks[0]), text)
    return f"{_SHORT[kind]}={text}"


def _dotted(kind: bytes) -> str:
    """A kind of name as numbers."""
    numbers, value = [], 0
    for byte in kind:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
