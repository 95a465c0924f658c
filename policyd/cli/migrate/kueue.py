"""`policyd migrate kueue`: what policyd does otherwise than the Kueue of a cluster."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Unpack

import click
import yaml

from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.configuration.frameworks import kind_of
from policyd.api.kueue.names import QUEUE_NAME
from policyd.cli.clusters import CLUSTER, connection_for, missing, resource_of
from policyd.cli.formats.documents import ManyObjects, with_many_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all
from policyd.cli.options import CONTEXT, KUBECONFIG, TEXT_OR_JSON, ContextOptions
from policyd.cli.takeover.installation import PLURALS
from policyd.controller.metrics.metric_families import COUNTED, MEASURED
from policyd.controller.queues.queue_settings import ineffective_fields
from policyd.engine.documents.findings import Finding
from policyd.errors import ConfigurationError
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.kube.kueue_lease import KUEUE_PODS, NAMESPACE
from policyd.kube.pages import pages
from policyd.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LOCAL_QUEUES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from policyd.migrate.kueue.comparison import KueueDifference, chart_values, differences
from policyd.migrate.kueue.configuration import KueueSettings, read_settings
from policyd.migrate.kueue.survey import CONFIGURATION, NEEDED, QUEUES, Survey
from policyd.process import run
from policyd.program import USAGE
from policyd.standard_input import PATH

METRICS: Final = frozenset(each.name for each in (*COUNTED, *MEASURED))
MONITORING: Final = (
    Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"),
    Resource("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor"),
    Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"),
    Resource("grafana.integreatly.org", "v1beta1", "grafanadashboards", "GrafanaDashboard"),
)
DUMP: Final = (
    "kubectl get -A -o yaml deployments,configmaps,crds,clusterqueues,localqueues,cohorts,"
    "resourceflavors,topologies,admissionchecks,workloads"
)
"""The command that makes a dump."""


class KueueOptions(ContextOptions):
    """The options of the command."""

    files: tuple[str, ...]
    kueue_namespace: str
    output: str


@click.command("kueue")
@KUBECONFIG
@CONTEXT
@click.option(
    "--from",
    "files",
    multiple=True,
    type=PATH,
    help="Read objects from a file, folder or -, instead of a cluster; may be repeated.",
)
@click.option("--kueue-namespace", default=NAMESPACE, show_default=True, help="Namespace of Kueue.")
@TEXT_OR_JSON
def kueue(**given: Unpack[KueueOptions]) -> None:
    r"""Say what policyd does otherwise than a cluster's Kueue, and print the values of its chart.

    Reads Kueue's Deployment, Configuration, feature gates and webhooks; queues, flavors, checks,
    topologies and Workloads; the versions of the kinds; jobs of kinds that policyd does not queue;
    and monitors, alert rules and dashboards that read Kueue's metrics. Nothing is written.

    What is lost or different is listed on standard error. The values of policyd's chart are
    printed on standard output: install it beside Kueue with them, and then take the queues over
    with `policyd takeover`.

    Exits with 0 if nothing is lost, 1 if something is, or 2 if the cluster or a file cannot be
    read, or something needed is missing: no values are printed then.

    \b
    Examples:
      policyd migrate kueue > policyd-values.yaml
      policyd migrate kueue -o json | jq '.lost'
      kubectl get -A -o yaml deploy,cm,crd,cq,lq,workloads | policyd migrate kueue --from -
    """
    survey, findings = _from_files(given) if given["files"] else _from_cluster(given)
    findings += _needed(survey, given["files"])
    settings: KueueSettings | None = None
    try:
        if survey.configuration is not None:
            settings = read_settings(survey.configuration, survey.gates)
    except ConfigurationError as error:
        source = f"ConfigMap {survey.namespace}: {CONFIGURATION}"
        findings.append(
            Finding(source=source, message=str(error), hint=error.hint, rule="unreadable")
        )
    if exit_code(findings) == USAGE or settings is None:
        show_all(findings)
        click.echo("nothing is written, because not everything could be read", err=True)
        sys.exit(USAGE)
    ineffective = ineffective_fields(settings.configuration)
    found = differences(survey, settings, ineffective=ineffective, metrics=METRICS)
    result = Result(survey, found, chart_values(survey, settings, ineffective=ineffective))
    show_all(findings)
    lost = result.show_json() if given["output"] == "json" else result.show()
    sys.exit(exit_code(findings, failed=lost))


@dataclass(frozen=True)
class Result:
    """What the command has found."""

    survey: Survey
    differences: list[KueueDifference]
    values: dict[str, Any]

    def show(self) -> bool:
        """Show it to people; tell whether something is lost."""
        survey = self.survey
        version = f" {survey.version}" if survey.version else ""
        click.echo(f"Kueue{version} in {survey.namespace}", err=True)
        kinds = (count(survey.kinds[kind], kind) for kind in QUEUES if survey.kinds[kind])
        click.echo(", ".join(kinds) or "no queues", err=True)
        for each in self.differences:
            lost = each.effect == "lost"
            effect = click.style(f"{each.effect}:", fg="red" if lost else "yellow")
            click.echo(f"{effect} {click.style(each.subject, bold=True)}: {each.message}", err=True)
            if each.hint:
                click.secho(f"  hint: {each.hint}", fg="cyan", err=True)
        number = sum(each.effect == "lost" for each in self.differences)
        others = len(self.differences) - number
        click.echo(f"{count(number, 'thing')} lost, {others} different", err=True)
        click.echo("the rest of what differs: docs/reference/differences-from-kueue.md", err=True)
        click.echo(yaml.safe_dump(self.values, sort_keys=False), nl=False)
        return bool(number)

    def show_json(self) -> bool:
        """Print it for programs; tell whether something is lost."""
        survey = self.survey
        parts: dict[str, list[dict[str, str]]] = {"lost": [], "different": []}
        for each in self.differences:
            line = {"subject": each.subject, "message": each.message, "hint": each.hint}
            parts[each.effect].append(line)
        kinds = [{"kind": kind, "count": survey.kinds[kind]} for kind in QUEUES]
        document = {
            "version": survey.version,
            "namespace": survey.namespace,
            "replicas": survey.replicas,
            "objects": kinds,
            **parts,
            "values": self.values,
        }
        click.echo(json.dumps(document, indent=2, default=str))
        return bool(parts["lost"])


def _from_files(given: KueueOptions) -> tuple[Survey, list[Finding]]:
    if given["kubeconfig"] or given["context"]:
        raise click.UsageError("--from and --kubeconfig or --context cannot be used together")

    def compared(objects: ManyObjects) -> Survey:
        survey = Survey(given["kueue_namespace"])
        for value, _ in progress(iter(objects), "comparing", len(objects)):
            survey.add(value)
        return survey

    return with_many_objects(given["files"], compared)


async def losses(reader: Reader, namespace: str) -> list[str]:
    """Return what is lost with the Kueue of a cluster, and what is not known of it; in sentences.

    Args:
        reader: The API server.
        namespace: The namespace of Kueue.

    Raises:
        ApiError: If the API server does not answer.
    """
    survey, findings = Survey(namespace), list[Finding]()
    await survey_cluster(reader, survey, findings)
    unknown = [each.message for each in (*findings, *_needed(survey, ()))]
    if survey.configuration is None:
        return unknown
    try:
        settings = read_settings(survey.configuration, survey.gates)
    except ConfigurationError as error:
        return [*unknown, f"ConfigMap of {namespace}: {error}"]
    ineffective = ineffective_fields(settings.configuration)
    found = differences(survey, settings, ineffective=ineffective, metrics=METRICS)
    return [*unknown, *(f"{e.subject}: {e.message}" for e in found if e.effect == "lost")]


def _needed(survey: Survey, files: Sequence[str]) -> Iterator[Finding]:
    """Yield the objects that are missing, and that a comparison needs."""
    source = ", ".join(files) or CLUSTER
    what = {
        "Deployment": (survey.deployment, "Deployment of Kueue"),
        "ConfigMap": (survey.configuration, f"ConfigMap with {CONFIGURATION}"),
        "CustomResourceDefinition": (survey.definitions, "CustomResourceDefinitions of Kueue"),
    }
    for kind in NEEDED:
        found, name = what[kind]
        if not found:
            where = (
                f" in namespace {survey.namespace}" if kind != "CustomResourceDefinition" else ""
            )
            hint = f"`{DUMP}` has all" if files else "`--kueue-namespace` names another"
            message = f"no {name}{where}"
            yield Finding(source=source, message=message, hint=hint, rule="unreadable")


def _from_cluster(given: KueueOptions) -> tuple[Survey, list[Finding]]:
    survey, findings = Survey(given["kueue_namespace"]), list[Finding]()

    async def main(_stop: asyncio.Event) -> None:
        async with HttpClient(connection_for(given)) as client:
            await survey_cluster(client, survey, findings)

    run(main)
    return survey, findings


async def survey_cluster(reader: Reader, survey: Survey, findings: list[Finding]) -> None:
    """Read a cluster.

    Args:
        reader: The API server.
        survey: Takes in the objects.
        findings: Gets what may not be read.

    Raises:
        ApiError: If the API server does not answer.
    """
    here = {"namespace": survey.namespace}
    await _read(reader, survey, findings, DEPLOYMENTS, **here, label_selector=KUEUE_PODS)
    await _read(reader, survey, findings, CONFIG_MAPS, **here)
    for plural in PLURALS:
        await _read_one(reader, survey, findings, f"{plural}.kueue.x-k8s.io")
    of_cluster = (
        *(MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS),
        *(CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, RESOURCE_FLAVORS, TOPOLOGIES),
        *(ADMISSION_CHECKS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS, *MONITORING),
    )
    for resource in of_cluster:
        await _read(reader, survey, findings, resource)
    await _read(reader, survey, findings, CONFIG_MAPS, label_selector="grafana_dashboard")
    async for resource in _unmanaged(reader, survey):
        await _read(reader, survey, findings, resource, label_selector=QUEUE_NAME)


async def _unmanaged(reader: Reader, survey: Survey) -> AsyncIterator[Resource]:
    """Yield the kinds that Kueue may queue, and policyd does not."""
    kinds = set(FRAMEWORKS.values())
    try:
        settings = read_settings(survey.configuration or "", survey.gates)
    except ConfigurationError:
        settings = None  # which is reported
    integrations = settings.configuration.integrations if settings is not None else None
    names = (integrations.external_frameworks or ()) if integrations is not None else ()
    kinds |= set(filter(None, map(kind_of, names)))
    for group, version, kind in sorted(kinds):
        known = (group, kind) == ("", "Pod") or find_kind(group, kind) or find_parent(group, kind)
        found = None if known else await resource_of(reader, f"{group}/{version}", kind)
        if found is not None:
            yield found


async def _read(
    reader: Reader,
    survey: Survey,
    findings: list[Finding],
    resource: Resource,
    **selection: str,
) -> None:
    try:
        async for page in pages(reader, resource, into=dict, **selection):  # type: ignore[arg-type]
            for each in page.items:
                survey.add({"apiVersion": resource.api_version, "kind": resource.kind, **each})
    except NotFoundError:
        return  # the cluster has no such kind
    except ForbiddenError as error:
        findings.append(_unread(resource.plural, error))


async def _read_one(reader: Reader, survey: Survey, findings: list[Finding], name: str) -> None:
    resource = CUSTOM_RESOURCE_DEFINITIONS
    try:
        found = await reader.get(resource, name, into=dict)
    except NotFoundError:
        return
    except ForbiddenError as error:
        findings.append(_unread(name, error))
        return
    survey.add({"apiVersion": resource.api_version, "kind": resource.kind, **found})


def _unread(what: str, error: ApiError) -> Finding:
    found = missing(f"{what} cannot be read", error)
    hint = "use the kubeconfig of an administrator of the cluster"
    return replace(found, rule="unreadable", hint=hint)
