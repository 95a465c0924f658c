"""Certificates: an own authority, the server certificates it issues, and checks of given ones.

Nothing here reads a file or a clock; `now` is seconds since the epoch.

Pure. Imports `api` and `errors`. Start with `authority`.
"""

from policyd.certificates.authority import BACKDATE_SECONDS, DAY, Authority
from policyd.certificates.given import (
    CertificateFacts,
    CertificatePair,
    certificate_facts,
    check_match,
    check_pair,
    split_bundle,
)

__all__ = [
    "BACKDATE_SECONDS",
    "DAY",
    "Authority",
    "CertificateFacts",
    "CertificatePair",
    "certificate_facts",
    "check_match",
    "check_pair",
    "split_bundle",
]
