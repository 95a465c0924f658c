"""Versions and cipher suites by the names of Kueue's Configuration."""

import ssl

import pytest

from policyd.api.configuration import decode_configuration
from policyd.api.configuration.kinds import API_VERSION
from policyd.api.configuration.tls import CIPHER_SUITES, SYSTEM, TlsRules, tls_rules
from policyd.errors import ConfigurationError

GCM = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
NEW = "TLS_AES_128_GCM_SHA256"


def rules(**tls):
    document = {"apiVersion": API_VERSION, "kind": "Configuration", **({"tls": tls} if tls else {})}
    return tls_rules(decode_configuration(document))


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        pytest.param({}, SYSTEM, id="nothing-is-set"),
        pytest.param({"minVersion": "VersionTLS12"}, SYSTEM, id="as-it-is-anyway"),
        pytest.param({"minVersion": "VersionTLS13"}, TlsRules(newest_only=True), id="newest"),
        pytest.param(
            {"cipherSuites": [GCM, NEW, GCM]},
            TlsRules(ciphers=("ECDHE-RSA-AES128-GCM-SHA256",)),
            id="suites",
        ),
        pytest.param({"cipherSuites": [NEW]}, TlsRules(newest_only=True), id="suites-of-1.3-only"),
    ],
)
def test_versions_and_suites_are_restricted(tls, expected):
    assert rules(**tls) == expected


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        pytest.param({"minVersion": "VersionTLS10"}, "`VersionTLS10`", id="version"),
        pytest.param(
            {"cipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"]}, "TLS_RSA_WITH_RC4_128_SHA", id="suite"
        ),
    ],
)
def test_what_is_not_served_is_named(tls, message):
    with pytest.raises(ConfigurationError, match=message):
        rules(**tls)


def test_openssl_knows_all_suites():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in CIPHER_SUITES.values():
        context.set_ciphers(f"{name}:@SECLEVEL=0")
