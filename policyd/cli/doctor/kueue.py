"""The check of a Kueue beside policyd: which of them leads, and whether that is as it should be."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

from policyd.cli.doctor.installation import without_leader
from policyd.cli.doctor.report import CheckedCluster, Checks, InstallationProblem, Severity
from policyd.cli.takeover.installation import RECORD, Installation, find, skips
from policyd.cli.takeover.steps import status_of
from policyd.kube.kueue_lease import NAME, NAMESPACE
from policyd.kube.resources import VALIDATING_WEBHOOK_CONFIGURATIONS

START: Final = "policyd takeover start"
_ENDING: Final = "-validating-webhook-configuration"


async def kueue(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find that Kueue leads, or that a takeover was stopped midway."""
    found = await find(cluster.client, await _namespace(cluster))
    for problem in beside(found, now=cluster.now):
        yield problem


async def _namespace(cluster: CheckedCluster) -> str:
    """Return the namespace of Kueue, which only administrators can name."""
    async for each in cluster.all(VALIDATING_WEBHOOK_CONFIGURATIONS, dict):
        name = str(each["metadata"]["name"])
        for webhook in each.get("webhooks") or () if "kueue" in name and _ENDING in name else ():
            service = webhook.get("clientConfig", {}).get("service") or {}
            if service.get("namespace"):
                return str(service["namespace"])
    return NAMESPACE


def beside(found: Installation, *, now: float) -> Iterator[InstallationProblem]:
    """Yield what is wrong with a Kueue beside policyd."""
    option = "" if found.namespace == NAMESPACE else f" --kueue-namespace {found.namespace}"
    lacking = [each for each in status_of(found).steps if not each.done]
    if lacking:
        message = f"a takeover was stopped midway: {lacking[0].missing}"
        fix = f"{START}{option}, or policyd takeover back{option}"
        yield _problem("error", f"ConfigMap {found.namespace}/{RECORD}", message, fix)
        return
    if found.lease is not None and not found.given:
        lease = f"Lease {found.namespace}/{NAME}"
        if next(without_leader(found.lease, now=now), None) is None:
            message = "Kueue leads: policyd stands by, and starts no job"
            yield _problem("warning", lease, message, f"{START}{option}")
        elif found.deployment is None:
            message = "no Kueue is there, and its Lease keeps policyd from leading"
            fix = f"kubectl delete lease {NAME} -n {found.namespace}"
            yield _problem("error", lease, message, fix)
    if found.deployment is None or not found.pods:
        for resource, each in found.configurations:
            if not all(map(skips, each["webhooks"])):
                message = "no pod of Kueue answers its calls: the API server refuses new jobs"
                what = f"{resource.kind} {each['metadata']['name']}"
                yield _problem("error", what, message, f"{START}{option}, or start Kueue")


def _problem(severity: Severity, what: str, message: str, fix: str) -> InstallationProblem:
    return InstallationProblem("kueue", severity, what, message, fix)


CHECKS: Checks = {"kueue": kueue}
