"""The own authority, and the checks of certificates that somebody gives."""

import ssl

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from policyd.certificates import (
    Authority,
    CertificatePair,
    certificate_facts,
    check_pair,
    split_bundle,
)
from policyd.errors import ConfigurationError

NOW = 1_800_000_000.0
DAY = 86400.0
NAMES = ("policyd.queue.svc", "*.example.org", "127.0.0.1", "0:0:0:0:0:0:0:1")

AUTHORITY = Authority.create(now=NOW)
PAIR = AUTHORITY.issue(NAMES, now=NOW, days=90)


def encrypted(key_pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(key_pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def test_an_issued_certificate_passes_every_check():
    facts = check_pair(PAIR, now=NOW, names=["policyd.queue.svc", "a.example.org", "::1"])

    assert facts.not_before < NOW
    assert facts.not_after == NOW + 90 * DAY


def test_a_tls_client_that_trusts_the_authority_accepts_it_in_strict_mode(tmp_path):
    authority = Authority.create(now=1_700_000_000.0, days=36500)
    pair = authority.issue(["door.test"], now=1_700_000_000.0, days=36000)
    (tmp_path / "chain.pem").write_bytes(pair.certificate_pem)
    (tmp_path / "key.pem").write_bytes(pair.key_pem)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(tmp_path / "chain.pem", tmp_path / "key.pem")
    client_context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT

    assert handshake(client_context, server_context, "door.test")["subjectAltName"] == (
        ("DNS", "door.test"),
    )


def handshake(client_context, server_context, name):
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.getpeercert()


def test_an_authority_survives_being_kept_as_pem():
    again = Authority(AUTHORITY.pair)

    assert again.issued(PAIR.certificate_pem)
    assert AUTHORITY.issued(again.issue(["x"], now=NOW).certificate_pem)


def test_two_authorities_differ_in_name_and_in_what_they_issued():
    other = Authority.create(now=NOW)

    assert not other.issued(PAIR.certificate_pem)
    assert not other.issued(b"no certificate")


def test_a_certificate_never_outlives_its_authority():
    authority = Authority.create(now=NOW, days=10)

    pair = authority.issue(["x"], now=NOW + DAY, days=90)

    assert certificate_facts(pair.certificate_pem).not_after == authority.not_after


def test_a_certificate_for_nothing_is_not_issued():
    with pytest.raises(ValueError, match="at least one name"):
        AUTHORITY.issue([], now=NOW)


def test_a_server_certificate_makes_no_authority():
    with pytest.raises(ConfigurationError, match="may not issue others"):
        Authority(PAIR)


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        pytest.param("policyd.queue.svc", True, id="exact"),
        pytest.param("Policyd.Queue.SVC", True, id="case-does-not-matter"),
        pytest.param("other.queue.svc", False, id="other-name"),
        pytest.param("a.example.org", True, id="wildcard-label"),
        pytest.param("a.b.example.org", False, id="wildcard-is-one-label"),
        pytest.param("example.org", False, id="wildcard-is-not-nothing"),
        pytest.param("127.0.0.1", True, id="address"),
        pytest.param("::1", True, id="address-in-short-form"),
        pytest.param("127.0.0.2", False, id="other-address"),
    ],
)
def test_names_are_covered_as_a_tls_client_would_see_it(name, covered):
    assert certificate_facts(PAIR.certificate_pem).covers(name) is covered


@pytest.mark.parametrize(
    ("certificate_pem", "key_pem", "now", "message"),
    [
        pytest.param(
            PAIR.certificate_pem,
            AUTHORITY.pair.key_pem,
            NOW,
            "certificate `x` does not match key `y`",
            id="other-key",
        ),
        pytest.param(
            PAIR.certificate_pem,
            rsa_key(),
            NOW,
            "certificate `x` does not match key `y`",
            id="key-of-another-algorithm",
        ),
        pytest.param(b"", PAIR.key_pem, NOW, "`x` is not a PEM certificate", id="empty"),
        pytest.param(
            b"\xff\x00", PAIR.key_pem, NOW, "`x` is not a PEM certificate", id="binary-certificate"
        ),
        pytest.param(
            PAIR.key_pem,
            PAIR.certificate_pem,
            NOW,
            "`x` is not a PEM certificate",
            id="key-and-certificate-swapped",
        ),
        pytest.param(
            PAIR.certificate_pem, b"word", NOW, "`y` is not a PEM private key", id="no-key"
        ),
        pytest.param(
            PAIR.certificate_pem,
            encrypted(PAIR.key_pem),
            NOW,
            "key `y` is encrypted",
            id="encrypted-key",
        ),
        pytest.param(
            PAIR.certificate_pem,
            PAIR.key_pem,
            NOW + 90 * DAY,
            "certificate `x` expired at 2027-04-15T08:00:00Z",
            id="expired-to-the-second",
        ),
        pytest.param(
            PAIR.certificate_pem,
            PAIR.key_pem,
            NOW - DAY,
            "certificate `x` is not valid before 2027-01-15T07:55:00Z",
            id="not-yet-valid",
        ),
    ],
)
def test_unusable_values_are_refused_by_the_users_names(certificate_pem, key_pem, now, message):
    pair = CertificatePair(certificate_pem=certificate_pem, key_pem=key_pem)

    with pytest.raises(ConfigurationError) as caught:
        check_pair(pair, now=now, certificate="x", key="y")

    assert str(caught.value) == message
    assert caught.value.hint


def test_a_name_that_is_missing_is_refused_and_the_hint_says_which_there_are():
    with pytest.raises(ConfigurationError, match="`certificate` is not for `webhooks`") as caught:
        check_pair(PAIR, now=NOW, names=["webhooks"])

    assert caught.value.hint == "it is for *.example.org, 127.0.0.1, ::1, policyd.queue.svc"


def test_a_bundle_is_split_into_its_certificates_each_once():
    other = Authority.create(now=NOW).certificate_pem

    parts = split_bundle(AUTHORITY.certificate_pem + other + AUTHORITY.certificate_pem)

    assert parts == (AUTHORITY.certificate_pem, other)
    assert split_bundle(b" \n") == ()


def test_a_bundle_of_something_else_is_refused():
    with pytest.raises(ConfigurationError, match="the CA bundle is not a list"):
        split_bundle(b"word")
