"""Which TLS the servers speak: versions and cipher suites, by the names that Kubernetes has."""

from typing import Final, NamedTuple

from policyd.api.configuration.kinds import Configuration
from policyd.errors import ConfigurationError, did_you_mean

_EXCHANGES: Final = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "RSA": ""}
_CIPHERS: Final = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305": "CHACHA20-POLY1305",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
CIPHER_SUITES: Final = {
    f"TLS_{exchange}_WITH_{cipher}": f"{prefix}{name}"
    for exchange, prefix in _EXCHANGES.items()
    for cipher, name in _CIPHERS.items()
    if exchange != "RSA" or "CHACHA20" not in cipher
}
"""OpenSSL's names of the suites of TLS 1.2 that may be chosen."""
ALWAYS: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""The suites of TLS 1.3, which cannot be chosen among."""
SUITES: Final = ALWAYS.union(CIPHER_SUITES)
"""All that are served."""


class TlsRules(NamedTuple):
    """Restrictions of the versions and suites of TLS.

    Attributes:
        newest_only: Whether TLS 1.2 is refused.
        ciphers: OpenSSL's names of the suites of TLS 1.2, the preferred ones first; empty for
            those of the system.
    """

    newest_only: bool = False
    ciphers: tuple[str, ...] = ()


SYSTEM: Final = TlsRules()
"""TLS 1.2 or newer, as the system has it."""


def tls_rules(configuration: Configuration) -> TlsRules:
    """Return the restrictions of TLS for all servers.

    Args:
        configuration: With defaults.

    Raises:
        ConfigurationError: If a version or a suite is not known.
    """
    tls = configuration.tls
    if tls is None:
        return SYSTEM
    if tls.min_version not in {"", "VersionTLS12", "VersionTLS13"}:
        raise ConfigurationError(
            f"`tls.minVersion` is `{tls.min_version}`, which is not served",
            hint="give `VersionTLS12` or `VersionTLS13`",
        )
    for suite in tls.cipher_suites:
        if suite not in SUITES:
            near = did_you_mean(suite, SUITES)
            raise ConfigurationError(
                f"`tls.cipherSuites` has `{suite}`, which is not served",
                hint=near or "give suites such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`",
            )
    newest_only = tls.min_version == "VersionTLS13" or (
        bool(tls.cipher_suites) and ALWAYS.issuperset(tls.cipher_suites)
    )
    chosen = (CIPHER_SUITES[suite] for suite in tls.cipher_suites if suite in CIPHER_SUITES)
    return TlsRules(newest_only, tuple(dict.fromkeys(chosen)))
