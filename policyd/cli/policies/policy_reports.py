"""`policyd report`: report the results of policies for many objects."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import click
import yaml

from policyd.api.admission import GroupVersionResource
from policyd.api.meta import Json
from policyd.cli.clusters import read_cluster
from policyd.cli.formats.documents import ManyObjects, load_texts, with_many_objects
from policyd.cli.formats.files import texts
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import exit_code, show_all, unusable
from policyd.cli.formats.tables import show_table
from policyd.cli.options import (
    AS_WRITTEN,
    IMPACT_OPTIONS,
    OBJECTS_IF_ANY,
    POLICIES,
    ClusterOptions,
    from_cluster,
    one_source,
)
from policyd.cli.policies.existing_objects import (
    KNOWN,
    ReportOptions,
    looked_up,
    take_objects,
)
from policyd.cli.policies.request_options import (
    NAMESPACE_LABELS,
    Labels,
    ObjectSurroundings,
)
from policyd.cli.policies.surroundings import read_scan_surroundings
from policyd.clock import SystemClock
from policyd.controller.policies.scanning import found_of
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.report import APIS, ReportApi, ResultCount, ResultKey, Rows, scanned
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    check_readable,
    custom_kinds,
    identify,
    in_its_namespace,
    offline_set,
    request_for,
)
from policyd.engine.offline.scan import Listed, PolicyScan, ScannedObject, resources_to_list
from policyd.kube.client import Reader
from policyd.kube.resources import Resource
from policyd.patch.readable import Readability

_APIS: Mapping[str, ReportApi] = {api.api_version: api for api in reversed(APIS)}


@click.command("report")
@POLICIES
@OBJECTS_IF_ANY
@NAMESPACE_LABELS
@AS_WRITTEN
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "yaml", "json", "sarif", "markdown"]),
    default="text",
    help="A table, the reports as objects, or a summary for CI or a pull request.",
)
@click.option(
    "--summary",
    is_flag=True,
    help="Sum up what would be refused and changed if all objects were created again.",
)
@IMPACT_OPTIONS
@click.option(
    "--api",
    type=click.Choice(list(_APIS)),
    default=next(iter(_APIS)),
    show_default=True,
    help="Which kind of reports.",
)
@from_cluster("objects, namespaces and params")
def command(**given: Unpack[ReportOptions]) -> None:
    r"""Report the results of policies for existing objects, a line for each policy and namespace.

    Each object is evaluated as if it were created now; shadow policies are included. A policy
    that reads the user of the request, or the queues, is skipped. With --cluster, the objects are
    all that the policies concern in the cluster, as far as its user may list them.
    `policyd controller --reports` writes the same results into a cluster.

    With --summary, the answer is what the policies would refuse and change of the objects, by team,
    owner, policy, rule and field. The formats sarif and markdown always sum up.

    Exits with 0 if there is no failure, 1 if there is one, a policy is invalid, something may not
    be listed, or it is unknown whether a policy applies because a namespace's labels are missing,
    and 2 if a document is not an object or the cluster cannot be asked.

    \b
    Examples:
      policyd report -p policies/ -f manifests/
      policyd report -p policies/ --cluster
      policyd report -p policies/ --cluster --summary --team team
      kubectl get pods,jobs -A -o yaml | policyd report -p policies/ -f -
      policyd report -p policies/ -f manifests/ -o yaml --api openreports.io/v1alpha1
    """
    one_source(given, given["objects"], "-f")
    named = tuple(texts(given["policies"]))
    loaded = load_texts(named)
    if not loaded.policies and not loaded.findings:
        raise click.UsageError(f"no policy in {', '.join(given['policies'])}")
    if given["summary"] or given["output"] in ("sarif", "markdown"):
        # Imported only where it is used, as it takes a while.
        from policyd.cli.policies.impact_objects import sum_up_objects  # noqa: PLC0415

        sum_up_objects(named, loaded, given)
    scan, findings = _of_cluster(loaded, given) if given["cluster"] else _of_files(loaded, given)
    show_all([*loaded.findings, *findings])
    _print(scan.book.namespaces, given)
    fails = _fails(scan.book.namespaces.values())
    sys.exit(exit_code([*loaded.findings, *findings], failed=fails))


def _of_files(loaded: Loaded, given: ReportOptions) -> tuple[PolicyScan, list[Finding]]:
    def evaluated(documents: ManyObjects) -> tuple[PolicyScan, list[Finding]]:
        objects = list(documents.of_kinds(looked_up(loaded.policies)))
        labels = Labels(objects, given)
        policies = offline_set(
            loaded,
            labels.lookup,
            objects=objects,
            now=SystemClock().now,
            as_written=given["as_written"],
        )
        scan = PolicyScan(policies)
        circumstances = RequestCircumstances(kinds=custom_kinds(objects))
        return scan, _look_at(documents, scan, policies, labels, circumstances)

    (scan, found), findings = with_many_objects(given["objects"], evaluated)
    return scan, [*findings, *found]


def _of_cluster(loaded: Loaded, given: ReportOptions) -> tuple[PolicyScan, list[Finding]]:
    def policies_with(surroundings: ObjectSurroundings) -> PolicySet:
        labels = Labels(surroundings.objects, given, of_cluster=True)
        return offline_set(
            surroundings.kept(loaded),
            labels.lookup,
            objects=surroundings.objects,
            now=SystemClock().now,
            as_written=True,  # the API server has set the defaults
        )

    found = scan_cluster(given, loaded, policies_with)
    return found.scan, found.findings


def _look_at(
    documents: ManyObjects,
    scan: PolicyScan,
    policies: PolicySet,
    labels: Labels,
    circumstances: RequestCircumstances,
) -> list[Finding]:
    """Evaluate each object; return a finding for each that is invalid or undecided."""
    findings: list[Finding] = []
    noted: dict[tuple[GroupVersionResource, str], Listed] = {}
    check = Readability().check
    for value, document in progress(documents, "looking at", len(documents)):
        try:
            kind, resource, name, namespace = identify(value, circumstances)
            check_readable(value, check)
        except ObjectError as error:
            findings.append(unusable(document(), error))
            continue
        listed = noted.get((resource, namespace))
        if listed is None:
            labels.note(policies, request_for(value, circumstances))
            listed = Listed(resource.group, resource.version, resource.resource)
            noted[resource, namespace] = listed
        scan.evaluate(
            ScannedObject(
                resource=listed,
                kind=kind.kind,
                namespace="" if kind.kind == "Namespace" else namespace,
                name=name or value["metadata"].get("generateName", ""),
                value=in_its_namespace(value, namespace),
            )
        )
    return [*findings, *labels.findings]


def _fails(namespaces: Iterable[Rows]) -> bool:
    return any(
        key.result in {"fail", "error"} and not key.shadow_of for rows in namespaces for key in rows
    )


def _print(namespaces: Mapping[str, Rows], given: ReportOptions) -> None:
    if given["output"] == "text":
        _print_table(namespaces)
        return
    api, now = _APIS[given["api"]], SystemClock().now()
    reports: Sequence[dict[str, Any]] = [
        scanned(api, namespace, rows, None, now=now)
        for namespace, rows in sorted(namespaces.items())
    ]
    if given["output"] == "json":
        click.echo(json.dumps(reports, indent=2))
    elif reports:
        click.echo(yaml.safe_dump_all(reports, sort_keys=False), nl=False)


def _print_table(namespaces: Mapping[str, Rows]) -> None:
    rows = [
        _row(namespace, key, row)
        for namespace, found in sorted(namespaces.items())
        for key, row in sorted(found.items())
    ]
    if not rows:
        return
    names = ("NAMESPACE", "POLICY", "VALIDATION", "RESULT", "OBJECTS", "FIRST OF THEM")
    show_table(names, rows, numbers=["OBJECTS"])


def _row(namespace: str, key: ResultKey, row: ResultCount) -> tuple[str, ...]:
    strict = f" ({key.enforcement})" if key.enforcement else ""
    shadow = f" (shadow of {key.shadow_of})" if key.shadow_of else ""
    first = f"{row.subjects[0].kind} {row.subjects[0].name}" if row.subjects else "-"
    return (
        namespace or "-",
        f"{key.policy}{shadow}",
        key.validation or "-",
        f"{key.result}{strict}",
        str(row.count),
        first,
    )


@dataclass(slots=True)
class ClusterScan:
    """A scan of the objects of a cluster, and what could not be read."""

    scan: PolicyScan
    findings: list[Finding] = field(default_factory=list)


def scan_cluster(
    given: ClusterOptions, loaded: Loaded, policies_with: Callable[[ObjectSurroundings], PolicySet]
) -> ClusterScan:
    """Evaluate policies on all objects of a cluster that they concern.

    Args:
        given: Which cluster.
        loaded: The policies.
        policies_with: Makes a set of them with the surroundings.

    Returns:
        The results. If the cluster does not answer, the command ends with 2.
    """

    async def read(reader: Reader, _namespace: str) -> ClusterScan:
        surroundings = await read_scan_surroundings(reader, loaded.policies)
        scan, findings = PolicyScan(policies_with(surroundings)), surroundings.findings
        for listed in resources_to_list(scan.policies, KNOWN):

            def take(resource: Resource, item: Json, listed: Listed = listed) -> None:
                scan.evaluate(found_of(listed, resource, item))

            await take_objects(reader, listed, take, findings)
        return ClusterScan(scan, findings)

    return read_cluster(given, read)
