"""The next step of the rotation of the certificates in a Secret. Pure: it writes nothing.

Theory of operation. An authority must reach the API server before its certificates, and go after
them. So an authority is replaced in four steps, each of which any replica may take, and none of
which breaks a call that is on its way:

1. the upcoming authority is made, and published beside the current one;
2. once every configuration has it, and the API server had time to notice, it becomes the current
   one and issues the certificate to serve; the old one stays published;
3. once every replica had time to read the new certificate, the old authority is dropped.

The certificate to serve is renewed by the current authority long before it expires, which changes
nothing that is published.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from policyd.certificates import (
    BACKDATE_SECONDS,
    DAY,
    Authority,
    CertificatePair,
    certificate_facts,
    check_match,
    split_bundle,
)
from policyd.errors import ConfigurationError

LEAF_RENEWAL = 1 / 3
"""Renew when this part of a certificate's life is left: a month of ninety days."""

AUTHORITY_RENEWAL = 1 / 5
"""Prepare another authority when this part of its life is left: two years of ten."""

OBSERVE_SECONDS = 600.0
"""How long the API server has to notice an authority. It takes seconds; ten minutes cost nothing,
since years are left."""

RETIRE_SECONDS = DAY
"""How long an authority stays trusted after its successor took over: replicas read the Secret
every minute, and one that was cut off for a day is restarted sooner or later."""


class RotationStep(enum.Enum):
    """The next thing to do."""

    NOTHING = "nothing"
    CREATE_AUTHORITY = "create_authority"
    ISSUE_CERTIFICATE = "issue_certificate"
    PREPARE_AUTHORITY = "prepare_authority"
    SWITCH_AUTHORITY = "switch_authority"
    DROP_AUTHORITY = "drop_authority"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCertificates:
    """The content of the Secret: authorities and the certificate to serve."""

    authority: CertificatePair | None = None
    upcoming: CertificatePair | None = None
    retired_pem: bytes = b""
    """The certificate of the authority before, while it is still trusted."""
    leaf: CertificatePair | None = None

    @property
    def bundle_pem(self) -> bytes:
        """The authorities to trust, for `caBundle`."""
        pairs = (self.authority, self.upcoming)
        return b"".join((*(p.certificate_pem for p in pairs if p), self.retired_pem))


def read_secret(data: Mapping[str, bytes]) -> KeptCertificates:
    """Read a Secret, which may be empty.

    Raises:
        ConfigurationError: If it holds no certificate, or one that does not match its key.
    """
    return KeptCertificates(
        authority=_pair(data, "ca"),
        upcoming=_pair(data, "upcoming-ca"),
        retired_pem=b"".join(split_bundle(data.get("retired-ca.crt", b""))),
        leaf=_pair(data, "tls"),
    )


def write_secret(kept: KeptCertificates) -> dict[str, bytes]:
    """Return the data of the Secret; `tls.crt` and `tls.key` are named as a TLS Secret's."""
    return {
        **_entries("ca", kept.authority),
        **_entries("upcoming-ca", kept.upcoming),
        **_entries("tls", kept.leaf),
        **({"retired-ca.crt": kept.retired_pem} if kept.retired_pem else {}),
    }


def next_step(
    kept: KeptCertificates, *, now: float, names: Sequence[str], published: frozenset[bytes]
) -> RotationStep:
    """Decide on the next step.

    Args:
        kept: The content of the Secret.
        now: The moment.
        names: The names that the certificate to serve must have.
        published: The authorities that every webhook configuration trusts, each as PEM.
    """
    if kept.authority is None or _expired(kept.authority, now):
        return RotationStep.CREATE_AUTHORITY
    if kept.leaf is None or _unfit(kept.leaf, kept.authority, now=now, names=names):
        return RotationStep.ISSUE_CERTIFICATE
    if kept.upcoming is not None:
        observed = now >= _made(kept.upcoming) + OBSERVE_SECONDS
        known = kept.upcoming.certificate_pem in published
        return RotationStep.SWITCH_AUTHORITY if observed and known else RotationStep.NOTHING
    if _left(kept.authority, now) < AUTHORITY_RENEWAL:
        return RotationStep.PREPARE_AUTHORITY
    if kept.retired_pem and now >= _made(kept.leaf) + RETIRE_SECONDS:
        return RotationStep.DROP_AUTHORITY
    return RotationStep.NOTHING


def take_step(
    kept: KeptCertificates, step: RotationStep, *, now: float, names: Sequence[str]
) -> KeptCertificates:
    """Return the content of the Secret after a step. Only new keys are chosen at random."""
    takes: dict[RotationStep, Callable[[], KeptCertificates]] = {
        RotationStep.NOTHING: lambda: kept,
        RotationStep.CREATE_AUTHORITY: lambda: _issued_by(
            Authority.create(now=now), KeptCertificates(), now, names
        ),
        RotationStep.ISSUE_CERTIFICATE: lambda: _issued_by(
            _authority(kept.authority), kept, now, names
        ),
        RotationStep.PREPARE_AUTHORITY: lambda: replace(
            kept, upcoming=Authority.create(now=now).pair
        ),
        RotationStep.SWITCH_AUTHORITY: lambda: _switched(kept, now, names),
        RotationStep.DROP_AUTHORITY: lambda: replace(kept, retired_pem=b""),
    }
    return takes[step]()


def _switched(kept: KeptCertificates, now: float, names: Sequence[str]) -> KeptCertificates:
    old = _authority(kept.authority).certificate_pem
    rest = replace(kept, upcoming=None, retired_pem=old)
    return _issued_by(_authority(kept.upcoming), rest, now, names)


def _issued_by(
    authority: Authority, kept: KeptCertificates, now: float, names: Sequence[str]
) -> KeptCertificates:
    return replace(kept, authority=authority.pair, leaf=authority.issue(names, now=now))


def _authority(pair: CertificatePair | None) -> Authority:
    assert pair is not None, "a step that needs an authority is only chosen when there is one"
    return Authority(pair)


def _unfit(
    leaf: CertificatePair, authority: CertificatePair, *, now: float, names: Sequence[str]
) -> bool:
    if not Authority(authority).issued(leaf.certificate_pem):
        return True
    facts = certificate_facts(leaf.certificate_pem)
    # The end of the authority counts, too: no renewal can reach past it.
    worn = _left(leaf, now) < LEAF_RENEWAL and facts.not_after < _end(authority)
    return worn or now >= facts.not_after or not all(facts.covers(name) for name in names)


def _left(pair: CertificatePair, now: float) -> float:
    """Return the part of a certificate's life that is left, 0 to 1."""
    facts = certificate_facts(pair.certificate_pem)
    return max(0.0, (facts.not_after - now) / (facts.not_after - facts.not_before))


def _made(pair: CertificatePair) -> float:
    return certificate_facts(pair.certificate_pem).not_before + BACKDATE_SECONDS


def _end(pair: CertificatePair) -> float:
    return certificate_facts(pair.certificate_pem).not_after


def _expired(pair: CertificatePair, now: float) -> bool:
    return now >= _end(pair)


def _pair(data: Mapping[str, bytes], name: str) -> CertificatePair | None:
    certificate, key = data.get(f"{name}.crt", b""), data.get(f"{name}.key", b"")
    if not certificate and not key:
        return None
    pair = CertificatePair(certificate_pem=certificate, key_pem=key)
    try:
        check_match(pair, certificate=f"{name}.crt", key=f"{name}.key")
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the Secret cannot be used: {error}",
            hint="delete it to have a new authority created",
        ) from error
    return pair


def _entries(name: str, pair: CertificatePair | None) -> dict[str, bytes]:
    if pair is None:
        return {}
    return {f"{name}.crt": pair.certificate_pem, f"{name}.key": pair.key_pem}
