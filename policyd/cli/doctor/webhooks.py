"""Checks of the webhooks: their configurations, their certificate, and calls of the API server."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from policyd.api.admission import Rule
from policyd.api.meta import Json, ObjectMeta, Wire, rfc3339
from policyd.api.policy import GROUP as OWN_GROUP
from policyd.api.policy import VERSION as OWN_VERSION
from policyd.certificates import DAY, certificate_facts, split_bundle
from policyd.certificates.given import load_certificate
from policyd.cli.doctor.report import CheckedCluster, Checks, InstallationProblem, SkippedCheckError
from policyd.errors import PolicydError
from policyd.kube.client import PartialObject
from policyd.kube.errors import ApiError, ForbiddenError, InternalError, NotFoundError
from policyd.kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    POLICIES,
    RESOURCE_FLAVORS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from policyd.registration.configurations import NAME

NEAR_END_SECONDS: Final = 7 * DAY
"""The webhooks renew their own certificate weeks before its end."""
CONNECT_SECONDS: Final = 5.0
REGISTER: Final = (
    "helm upgrade policyd charts/policyd -n policyd-system --reuse-values"
    " (or restart policyd-webhooks, if it runs with --register)"
)
PROBE: Final = "policyd-doctor"
"""The name of the object that a dry run creates."""


class ServiceReference(Wire, frozen=True):
    """The Service that a webhook is called by."""

    namespace: str
    name: str
    port: int = 443


class ClientConfig(Wire, frozen=True):
    """How a webhook is called."""

    url: str = ""
    service: ServiceReference | None = None
    ca_bundle: bytes = b""


class Webhook(Wire, frozen=True):
    """The parts of a webhook that are checked."""

    name: str
    client_config: ClientConfig = ClientConfig()
    rules: tuple[Rule, ...] = ()
    failure_policy: str = "Fail"


class FoundConfiguration(Wire, frozen=True):
    """A mutating or validating webhook configuration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class Certificates(msgspec.Struct, frozen=True):
    """The certificate in a Secret."""

    certificate: bytes = msgspec.field(default=b"", name="tls.crt")


class FoundSecret(Wire, frozen=True):
    """The parts of a Secret that are checked; its key is not read."""

    data: Certificates = Certificates()


_BOTH: Final = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)


async def _configuration(cluster: CheckedCluster, resource: Resource) -> FoundConfiguration | None:
    try:
        return await cluster.client.get(resource, NAME, into=FoundConfiguration)
    except NotFoundError:
        return None


async def _webhooks(cluster: CheckedCluster) -> list[Webhook]:
    """Return all webhooks.

    Raises:
        SkippedCheckError: If there are none, which the check of the registration reports.
    """
    found = [await _configuration(cluster, resource) for resource in _BOTH]
    webhooks = [webhook for each in found if each for webhook in each.webhooks]
    if not webhooks:
        raise SkippedCheckError("there are no webhook configurations")
    return webhooks


async def registration(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find webhook configurations that are missing, empty or not alike."""
    found: list[Webhook] = []
    for resource in _BOTH:
        configuration = await _configuration(cluster, resource)
        if configuration is None or not configuration.webhooks:
            how = "is missing" if configuration is None else "has no webhooks"
            yield _wrong(f"{resource.kind} {NAME}", f"it {how}: policies have no effect")
            continue
        found += configuration.webhooks
    bundles = {each.client_config.ca_bundle for each in found}
    if len(bundles) > 1:
        message = "their webhooks have different CA bundles: something else has changed them"
        yield _wrong(f"webhook configurations {NAME}", message)
    called = {(each.client_config.url.rpartition("/")[0], service(each)) for each in found}
    if len(called) > 1:
        message = "their webhooks lead to different servers: something else has changed them"
        yield _wrong(f"webhook configurations {NAME}", message)


def service(webhook: Webhook) -> str:
    """Return `namespace/name` of the Service of a webhook; "" for none."""
    found = webhook.client_config.service
    return f"{found.namespace}/{found.name}" if found else ""


def _wrong(what: str, message: str) -> InstallationProblem:
    return InstallationProblem("registration", "error", what, message, REGISTER)


async def certificate(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find a certificate that is near its end, or that the API server does not accept."""
    webhooks = await _webhooks(cluster)
    config = webhooks[0].client_config
    if config.service is not None:
        reference = config.service
        what = f"Secret {reference.namespace}/{reference.name}"
        pem = await _in_secret(cluster, reference)
        names: Sequence[str] = (f"{reference.name}.{reference.namespace}.svc",)
        fix = f"kubectl rollout restart deployment {reference.name} -n {reference.namespace}"
    else:
        what = f"server {config.url}"
        pem = await _served(config.url)
        names = (str(urlsplit(config.url).hostname),)
        fix = "restart policyd-webhooks, and see its log"
    for message in wrong_with(pem, config.ca_bundle, names=names, now=cluster.now):
        yield InstallationProblem("certificate", "error", what, message, fix)


async def _in_secret(cluster: CheckedCluster, reference: ServiceReference) -> bytes:
    try:
        secret = await cluster.client.get(
            SECRETS, reference.name, namespace=reference.namespace, into=FoundSecret
        )
    except NotFoundError as error:
        raise SkippedCheckError(
            f"there is no Secret {reference.namespace}/{reference.name}: the webhooks have their"
            " certificate from elsewhere"
        ) from error
    return secret.data.certificate


async def _served(url: str) -> bytes:
    """Return the certificate that a server shows.

    Raises:
        SkippedCheckError: If it cannot be reached from here, which says nothing of the API server.
    """
    parts = urlsplit(url)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=trusting)
    except (OSError, TimeoutError) as error:
        raise SkippedCheckError(f"{parts.netloc} cannot be reached from here") from error
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def wrong_with(pem: bytes, bundle: bytes, *, names: Sequence[str], now: float) -> Iterable[str]:
    """Yield what is wrong with a certificate.

    Args:
        pem: The certificate; b"" for none.
        bundle: The authorities that the API server trusts, as PEM; b"" for those of its machine.
        names: Names under which the API server calls.
        now: The moment.
    """
    if not pem.strip():
        yield "there is no certificate in it"
        return
    try:
        facts = certificate_facts(pem)
        authorities = split_bundle(bundle)
    except PolicydError as error:
        yield str(error)
        return
    end = rfc3339(facts.not_after)
    if facts.not_after <= now:
        yield f"the certificate expired at {end}"
    elif facts.not_after - now < NEAR_END_SECONDS:
        yield f"the certificate ends soon, at {end}, and was not renewed"
    for name in names:
        if not facts.covers(name):
            yield f"the certificate is not for {name}, but for {', '.join(sorted(facts.names))}"
    if authorities:
        yield from _not_trusted(pem, authorities, now)


def _not_trusted(pem: bytes, authorities: Sequence[bytes], now: float) -> Iterable[str]:
    where = "in the caBundle of the webhook configurations"
    if not any(_issued(pem, authority) for authority in authorities):
        yield f"no authority {where} has issued the certificate"
    if all(certificate_facts(authority).not_after <= now for authority in authorities):
        yield f"all authorities {where} have expired"


def _issued(pem: bytes, authority: bytes) -> bool:
    issuer = load_certificate(authority, "caBundle")
    for each in x509.load_pem_x509_certificates(pem):
        if each == issuer:
            return True
        try:
            each.verify_directly_issued_by(issuer)
        except (InvalidSignature, ValueError, TypeError):
            continue
        return True
    return False


async def calls(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find webhooks that the API server does not reach, by a dry run that they are asked about."""
    webhooks = await _webhooks(cluster)
    probe = probe_of(webhooks)
    if probe is None:
        raise SkippedCheckError("no webhook is asked about ResourceFlavors or Policies")
    resource, body = probe
    try:
        await cluster.client.create(resource, body, into=PartialObject, dry_run=True)
    except InternalError as error:
        if "webhook" not in str(error):
            raise
        yield _unreached(webhooks, str(error))
    except ForbiddenError as error:
        if "denied the request" not in str(error):
            raise  # the user may not create it
    except ApiError:
        return  # something is wrong with the object, which is not stored: the webhooks answered


def probe_of(webhooks: Iterable[Webhook]) -> tuple[Resource, dict[str, Json]] | None:
    """Return an object whose creation the webhooks are asked about; None if there is none.

    A webhook that is ignored while it is unreachable tells nothing, so one that is not goes first.
    """
    ordered = sorted(webhooks, key=lambda each: each.failure_policy != "Fail")
    for webhook in ordered:
        for resource, body in _PROBES:
            if any(_asks(rule, resource) for rule in webhook.rules):
                return resource, body
    return None


_PROBES: Final[tuple[tuple[Resource, dict[str, Json]], ...]] = (
    (RESOURCE_FLAVORS, {"metadata": {"name": PROBE}, "spec": {}}),
    (
        POLICIES,
        {
            "apiVersion": f"{OWN_GROUP}/{OWN_VERSION}",
            "kind": "Policy",
            "metadata": {"name": PROBE},
            "spec": {"validations": [{"expression": "true"}]},
        },
    ),
)


def _asks(rule: Rule, resource: Resource) -> bool:
    return (
        rule.scope in {"Cluster", "*"}
        and not {resource.group, "*"}.isdisjoint(rule.api_groups)
        and not {resource.plural, "*", "*/*"}.isdisjoint(rule.resources)
        and not {"CREATE", "*"}.isdisjoint(rule.operations)
    )


def _unreached(webhooks: Sequence[Webhook], reason: str) -> InstallationProblem:
    reference = webhooks[0].client_config.service
    if reference is not None:
        what = f"Service {reference.namespace}/{reference.name}"
        fix = f"kubectl logs deployment/{reference.name} -n {reference.namespace}"
    else:
        what = f"server {webhooks[0].client_config.url}"
        fix = "restart policyd-webhooks, and see its log"
    message = f"the API server does not reach the webhooks: {reason}"
    return InstallationProblem("calls", "error", what, message, fix)


CHECKS: Checks = {"registration": registration, "certificate": certificate, "calls": calls}
