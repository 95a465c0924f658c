"""The certificates in the Secret: what is due when, and that trust always comes before need."""

from dataclasses import replace

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.certificates import DAY, Authority, certificate_facts, split_bundle
from policyd.errors import ConfigurationError
from webhooks.certificate.rotation import (
    OBSERVE_SECONDS,
    RETIRE_SECONDS,
    KeptCertificates,
    RotationStep,
    next_step,
    read_secret,
    take_step,
    write_secret,
)

NOW = 1_800_000_000.0
NAMES = ("policyd-webhooks.policyd.svc",)
OLD, NEW = Authority.create(now=NOW), Authority.create(now=NOW)


def kept(authority=OLD, *, issued=NOW, upcoming=None, retired=b"", names=NAMES):
    return KeptCertificates(
        authority=authority.pair,
        leaf=authority.issue(names, now=issued),
        upcoming=upcoming.pair if upcoming else None,
        retired_pem=retired,
    )


def published(*authorities):
    return frozenset(authority.certificate_pem for authority in authorities)


LATE = NOW + 3000 * DAY


@pytest.mark.parametrize(
    ("state", "now", "trusted", "step"),
    [
        pytest.param(KeptCertificates(), NOW, (), RotationStep.CREATE_AUTHORITY, id="empty-secret"),
        pytest.param(
            kept(), NOW + 3650 * DAY, (OLD,), RotationStep.CREATE_AUTHORITY, id="authority-expired"
        ),
        pytest.param(
            replace(kept(), leaf=None),
            NOW,
            (OLD,),
            RotationStep.ISSUE_CERTIFICATE,
            id="no-certificate",
        ),
        pytest.param(
            replace(kept(), leaf=NEW.issue(NAMES, now=NOW)),
            NOW,
            (OLD,),
            RotationStep.ISSUE_CERTIFICATE,
            id="certificate-of-somebody-else",
        ),
        pytest.param(
            kept(names=("other",)),
            NOW,
            (OLD,),
            RotationStep.ISSUE_CERTIFICATE,
            id="for-another-name",
        ),
        pytest.param(kept(), NOW, (OLD,), RotationStep.NOTHING, id="all-fresh"),
        pytest.param(kept(), NOW + 59 * DAY, (OLD,), RotationStep.NOTHING, id="before-renewal"),
        pytest.param(
            kept(), NOW + 61 * DAY, (OLD,), RotationStep.ISSUE_CERTIFICATE, id="a-third-left"
        ),
        pytest.param(kept(), NOW + 90 * DAY, (OLD,), RotationStep.ISSUE_CERTIFICATE, id="expired"),
        pytest.param(
            kept(issued=LATE),
            LATE,
            (OLD,),
            RotationStep.PREPARE_AUTHORITY,
            id="authority-grows-old",
        ),
        pytest.param(
            kept(upcoming=NEW),
            NOW + OBSERVE_SECONDS,
            (OLD,),
            RotationStep.NOTHING,
            id="upcoming-not-published",
        ),
        pytest.param(
            kept(upcoming=NEW),
            NOW + OBSERVE_SECONDS - 1,
            (OLD, NEW),
            RotationStep.NOTHING,
            id="upcoming-not-yet-observed",
        ),
        pytest.param(
            kept(upcoming=NEW),
            NOW + OBSERVE_SECONDS,
            (OLD, NEW),
            RotationStep.SWITCH_AUTHORITY,
            id="upcoming-trusted-everywhere",
        ),
        pytest.param(
            kept(NEW, retired=OLD.certificate_pem),
            NOW + RETIRE_SECONDS - 1,
            (OLD, NEW),
            RotationStep.NOTHING,
            id="replicas-may-still-serve-the-old",
        ),
        pytest.param(
            kept(NEW, retired=OLD.certificate_pem),
            NOW + RETIRE_SECONDS,
            (OLD, NEW),
            RotationStep.DROP_AUTHORITY,
            id="nobody-serves-the-old",
        ),
    ],
)
def test_the_next_step(state, now, trusted, step):
    assert next_step(state, now=now, names=NAMES, published=published(*trusted)) is step


def test_a_switch_serves_the_new_authoritys_certificate_and_trusts_both():
    state = take_step(
        kept(upcoming=NEW), RotationStep.SWITCH_AUTHORITY, now=NOW + OBSERVE_SECONDS, names=NAMES
    )

    assert NEW.issued(state.leaf.certificate_pem)
    assert state.upcoming is None
    assert split_bundle(state.bundle_pem) == (NEW.certificate_pem, OLD.certificate_pem)


def test_the_kept_certificate_survives_the_secret():
    state = kept(upcoming=NEW, retired=OLD.certificate_pem)

    assert read_secret(write_secret(state)) == state
    assert read_secret({}) == KeptCertificates()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            {"tls.crt": OLD.certificate_pem, "tls.key": NEW.pair.key_pem},
            "the Secret cannot be used: certificate `tls.crt` does not match key `tls.key`",
            id="certificate-and-key-differ",
        ),
        pytest.param(
            {"ca.crt": OLD.certificate_pem},
            "the Secret cannot be used: `ca.key` is not a PEM private key",
            id="key-missing",
        ),
        pytest.param(
            {"ca.crt": b"word", "ca.key": OLD.pair.key_pem},
            "the Secret cannot be used: `ca.crt` is not a PEM certificate",
            id="not-a-certificate",
        ),
    ],
)
def test_a_secret_that_keeps_something_else_is_refused_with_a_way_out(data, message):
    with pytest.raises(ConfigurationError) as caught:
        read_secret(data)

    assert str(caught.value) == message
    assert caught.value.hint == "delete it to have a new authority created"


def test_left_alone_for_thirty_years_it_serves_a_trusted_certificate_every_day():
    state, trusted, served = KeptCertificates(), frozenset(), []
    now = NOW
    while now < NOW + 30 * 365 * DAY:
        step = next_step(state, now=now, names=NAMES, published=trusted)
        state = take_step(state, step, now=now, names=NAMES)
        if state.authority and state.leaf:
            served.append(step)
            assert trusts(trusted or published(Authority(state.authority)), state.leaf)
            assert certificate_facts(state.leaf.certificate_pem).not_after > now + DAY
        trusted = frozenset(split_bundle(state.bundle_pem))
        now += 5 * DAY

    assert {
        RotationStep.SWITCH_AUTHORITY,
        RotationStep.DROP_AUTHORITY,
        RotationStep.ISSUE_CERTIFICATE,
    } <= set(served)
    assert served.count(RotationStep.SWITCH_AUTHORITY) == 3


def trusts(authorities, leaf):
    return any(issued_by(pem, leaf) for pem in authorities)


def issued_by(authority_pem, leaf):
    issuer = x509.load_pem_x509_certificate(authority_pem)
    certificate = x509.load_pem_x509_certificate(leaf.certificate_pem)
    try:
        certificate.verify_directly_issued_by(issuer)
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=50)  # keys are drawn: the time that takes varies
@given(st.lists(st.sampled_from([60.0, 3600.0, DAY, 20 * DAY, 100 * DAY]), max_size=12))
def test_steps_of_a_moment_end_after_any_pauses(pauses):
    state, now = KeptCertificates(), NOW
    for pause in pauses:
        now += pause
        for _ in range(5):
            trusted = frozenset(split_bundle(state.bundle_pem))
            step = next_step(state, now=now, names=NAMES, published=trusted)
            state = take_step(state, step, now=now, names=NAMES)

        assert step is RotationStep.NOTHING
