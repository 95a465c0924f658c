"""Sum up what policies would refuse and change of existing objects: for `policyd report`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NoReturn

import click
import msgspec

from policyd.api.admission import GroupVersionResource
from policyd.api.meta import Json
from policyd.cli.clusters import read_cluster
from policyd.cli.formats.documents import ManyObjects, end_if_invalid, with_many_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import unusable
from policyd.cli.planning.executors import cores
from policyd.cli.policies.existing_objects import (
    KNOWN,
    ReportOptions,
    looked_up,
    take_objects,
)
from policyd.cli.policies.impact_command import finish, gather, logged_request, note, team_of
from policyd.cli.policies.impact_outputs import ImpactAnswer
from policyd.cli.policies.judging import Judge, Judging, JudgingRun, Named, Setup
from policyd.cli.policies.request_options import NamespaceOptions
from policyd.cli.policies.surroundings import read_scan_surroundings
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.audit_log import Gone, LoggedRequest, RecentOwners
from policyd.engine.offline.impact import Impact
from policyd.engine.offline.requests import (
    CustomKinds,
    ObjectError,
    RequestCircumstances,
    check_readable,
    custom_kinds,
    request_for,
)
from policyd.engine.offline.scan import Listed, resources_to_list
from policyd.kube.client import Reader
from policyd.kube.resources import Resource
from policyd.patch.readable import Readability

_ENDED: Final = ("Succeeded", "Failed")
_OWNERS: Final = (Listed("apps", "v1", "replicasets"), Listed("batch", "v1", "jobs"))
"""Objects that own pods, and have an owner themselves."""


def sum_up_objects(named: Named, loaded: Loaded, given: ReportOptions) -> NoReturn:
    """Show what policies would refuse and change of objects, and end the command.

    Args:
        named: The files of the policies, for processes that load them again.
        loaded: The policies.
        given: The options.

    Raises:
        click.UsageError: If the options do not go together.
    """
    output = given["output"]
    if output == "yaml":
        raise click.UsageError("-o yaml writes reports, and --summary sums them up: leave out one")
    end_if_invalid(loaded, given["policies"])
    if given["cluster"]:
        impact, findings = _of_cluster(named, loaded, given)
    else:
        impact, findings = _of_files(named, loaded, given)
    answer = ImpactAnswer(impact=impact, policies=loaded.policies)
    finish(answer, output, "report", findings)


def _of_files(named: Named, loaded: Loaded, given: ReportOptions) -> tuple[Impact, list[Finding]]:
    def summed_up(documents: ManyObjects) -> tuple[Impact, list[Finding]]:
        objects = tuple(documents.of_kinds(looked_up(loaded.policies)))
        setup = Setup(
            policies=named,
            objects=objects,
            given=_labels_of(given),
            existing=True,
            as_written=given["as_written"],
        )
        judge = Judge(setup, loaded)
        judging = Judging(setup, judge, given["workers"] or cores())
        impact = Impact(team_of(given["team"], judge, dict))
        owners = RecentOwners()
        for value, _ in documents:
            owners.learn_from(value)
        source = _Existing(judge, owners, custom_kinds(objects))
        unreadable: list[Finding] = []
        gather(impact, judging, _entries(documents, source, unreadable))
        return impact, [*unreadable, *judging.findings]

    (impact, found), findings = with_many_objects(given["objects"], summed_up)
    return impact, [*findings, *found]


def _entries(
    documents: ManyObjects, source: "_Existing", findings: list[Finding]
) -> Iterator[LoggedRequest | Gone]:
    check = Readability().check
    for value, document in progress(documents, "looking at", len(documents)):
        try:
            check_readable(value, check)
            yield from source.entries(value)
        except ObjectError as error:
            findings.append(unusable(document(), error))


def _labels_of(given: ReportOptions) -> NamespaceOptions:
    return {
        "namespace_labels": given["namespace_labels"],
        "assume_labels": given["assume_labels"],
    }


class _Existing:
    """Makes requests of objects that exist."""

    def __init__(self, judge: Judge, owners: RecentOwners, kinds: CustomKinds) -> None:
        self._judge = judge
        self._owners = owners
        self._kinds = kinds

    def entries(
        self, value: Json, resource: GroupVersionResource | None = None
    ) -> Iterator[LoggedRequest | Gone]:
        """Yield the requests for an object, and that it is gone if it has ended.

        Raises:
            ObjectError: If it is not an object.
        """
        request = request_for(value, RequestCircumstances(kinds=self._kinds))
        ended = False
        for operation in self._judge.operations(request):
            circumstances = RequestCircumstances(operation=operation, kinds=self._kinds)
            old = value if operation == "UPDATE" else None
            request = request_for(value, circumstances, old_object=old)
            request = msgspec.structs.replace(
                request, dry_run=False, resource=resource or request.resource
            )
            logged = logged_request(request)
            if logged.controlled:
                owner = self._owners.topmost(logged.key.namespace, logged.owner)
                logged = replace(logged, owner=owner)
            yield logged
            ended = value_at(value, ("status", "phase")) in _ENDED
            if ended and request.kind.kind == "Pod":
                yield Gone(logged.key)


def _of_cluster(named: Named, loaded: Loaded, given: ReportOptions) -> tuple[Impact, list[Finding]]:
    async def read(reader: Reader, _namespace: str) -> tuple[Impact, list[Finding]]:
        surroundings = await read_scan_surroundings(reader, loaded.policies)
        findings = list(surroundings.findings)
        setup = Setup(
            policies=named,
            objects=tuple(surroundings.objects),
            given=_labels_of(given),
            of_cluster=True,
            existing=True,
            left_out=frozenset(surroundings.left_out),
            as_written=True,  # the API server has set the defaults
        )
        judge = Judge(setup, loaded)
        judging = Judging(setup, judge, given["workers"] or cores())
        impact = Impact(team_of(given["team"], judge, dict))
        owners = RecentOwners()
        listed = resources_to_list(judge.new.policies, KNOWN)
        if any(each.plural == "pods" for each in listed):
            for each in _OWNERS:
                await take_objects(reader, each, lambda _, item: owners.learn_from(item), [])
        source = _Existing(judge, owners, {})

        with JudgingRun(judging) as run:

            def take(resource: Resource, item: Json) -> None:
                at = GroupVersionResource(resource.group, resource.version, resource.plural)
                for entry in source.entries(item, at):
                    note(impact, run.take(entry))

            for each in listed:
                await take_objects(reader, each, take, findings)
            note(impact, run.rest())
        return impact, [*findings, *judging.findings]

    return read_cluster(given, read)
