"""Sum up what policies would refuse and change: for `policyd replay`."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

import click
import msgspec

from policyd.api.admission import AdmissionRequest
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json
from policyd.cli.clusters import missing, read_cluster
from policyd.cli.formats.documents import end_if_invalid, load_texts, read_objects
from policyd.cli.formats.files import texts
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import exit_code, show_all
from policyd.cli.planning.executors import cores
from policyd.cli.policies.audit_files import LogFile, LogProblems, reviews_of
from policyd.cli.policies.impact_outputs import (
    ImpactAnswer,
    Output,
    ReplayOptions,
    has_impact,
    show_impact,
    unconcerned,
    unjudged,
    unnamed,
)
from policyd.cli.policies.judging import Judge, JudgedEntry, Judging, Setup
from policyd.cli.policies.request_options import NamespaceOptions, ObjectSurroundings
from policyd.cli.policies.surroundings import read_scan_surroundings
from policyd.engine.documents.findings import Finding
from policyd.engine.objects.match import labels_of
from policyd.engine.offline.audit_log import (
    AuditEvent,
    AuditReader,
    Gone,
    LoggedKey,
    LoggedRequest,
    head_of,
)
from policyd.engine.offline.impact import Impact
from policyd.engine.offline.replay import Recording, read_recording
from policyd.engine.offline.requests import raw
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ForbiddenError
from policyd.kube.pages import pages

if TYPE_CHECKING:
    from policyd.engine.compile.load import Loaded

_PAGE: Final = 500
_ENDED: Final = frozenset({"Succeeded", "Failed"})


def sum_up(files: Sequence[LogFile], given: ReplayOptions) -> None:
    """Show what policies would have refused and changed of recorded requests; end the command.

    Args:
        files: Audit logs and AdmissionReviews.
        given: The options.

    Raises:
        click.UsageError: If there is no policy, or no request.
    """
    documents, findings = read_objects(given["objects"])
    policies = tuple(texts(given["policies"]))
    loaded = load_texts(policies)
    end_if_invalid(loaded, given["policies"])
    surroundings = _surroundings(given, loaded)
    findings += surroundings.findings
    setup = Setup(
        policies=policies,
        against=tuple(texts(given["against"])) if given["against"] else None,
        objects=(*(document.value for document in documents), *surroundings.objects),
        given=_namespace_options(given),
        of_cluster=given["cluster"],
        queue=given["queue"],
        left_out=frozenset(surroundings.left_out),
    )
    judge = Judge(setup, loaded)
    if judge.old_loaded is not None:
        findings += (each for each in judge.old_loaded.findings if each.severity == "error")
    source = _Recorded(files, judge, as_stored=not given["against"])
    judging = Judging(setup, judge, given["workers"] or cores(), source.namespaces)
    impact = Impact(team_of(given["team"], judge, source.namespaces))
    gather(impact, judging, source.entries())
    if not source.reader.counts.events and not source.reviews:
        show_all([*findings, *source.problems.findings()])
        raise click.UsageError(
            f"no audit event or AdmissionReview in {', '.join(given['recorded'])}"
        )
    if given["cluster"]:
        _look_up(impact, given, findings)
    answer = ImpactAnswer(
        impact=impact,
        policies=loaded.policies,
        counts=source.reader.counts,
        problems=source.problems,
    )
    finish(answer, given["output"], "replay", [*findings, *source.findings, *judging.findings])


def finish(
    answer: ImpactAnswer, output: Output, command: str, findings: Sequence[Finding]
) -> NoReturn:
    """Show an answer and findings, and end the command."""
    found = [
        *findings,
        *answer.problems.findings(),
        *unjudged(answer),
        *unconcerned(answer),
        *unnamed(answer.impact),
    ]
    show_all(found)
    show_impact(answer, output, command)
    sys.exit(exit_code(found, failed=has_impact(answer.impact)))


def gather(impact: Impact, judging: Judging, stream: Iterator[LoggedRequest | Gone]) -> None:
    """Judge requests, and take the verdicts."""
    note(impact, judging.verdicts(stream))


def note(impact: Impact, judged: Iterable[JudgedEntry]) -> None:
    """Take verdicts."""
    for each in judged:
        if isinstance(each, Gone):
            impact.gone(each)
        else:
            impact.take(*each)


def team_of(
    key: str, judge: Judge, namespaces: Callable[[], Mapping[str, Json]]
) -> Callable[[LoggedRequest], str]:
    """Return what tells the team of a request.

    Args:
        key: `namespace`, `queue`, or a label of namespaces.
        judge: Knows the namespaces that the command was given.
        namespaces: Returns those that the log has had so far.
    """
    if key == "namespace":
        return lambda logged: logged.key.namespace
    if key == "queue":
        return lambda logged: logged.queue

    def find(logged: LoggedRequest) -> str:
        name = logged.key.namespace
        if not name:
            return ""
        found = namespaces().get(name) or judge.namespace(name)
        return labels_of(found).get(key, "") if found is not None else ""

    return find


def _namespace_options(given: NamespaceOptions) -> NamespaceOptions:
    return {
        "namespace_labels": given["namespace_labels"],
        "assume_labels": given["assume_labels"],
    }


def _surroundings(given: ReplayOptions, loaded: "Loaded") -> ObjectSurroundings:
    if not given["cluster"]:
        return ObjectSurroundings()

    async def read(reader: Reader, _namespace: str) -> ObjectSurroundings:
        return await read_scan_surroundings(reader, loaded.policies)

    return read_cluster(given, read)


class _Recorded:
    """The requests of files: those of audit logs, and then those of AdmissionReviews."""

    def __init__(self, files: Sequence[LogFile], judge: Judge, *, as_stored: bool) -> None:
        self._files = files
        self._as_stored = as_stored
        self.reader = AuditReader(judge.concerns, judge.reads_old, as_stored=as_stored)
        self.problems = LogProblems()
        self.findings: list[Finding] = []
        self.reviews = 0

    def namespaces(self) -> Mapping[str, Json]:
        """Return the namespaces of the logs so far."""
        return self.reader.namespaces

    def entries(self) -> Iterator[LoggedRequest | Gone]:
        """Yield requests, and what is gone by them."""
        for event in self._events():
            yield from self.reader.take(event)
        for file in self._files:
            if not file.is_log:
                yield from self._of_reviews(file)

    def _events(self) -> Iterator[AuditEvent]:
        logs = [file for file in self._files if file.is_log]
        total = sum(file.size for file in logs) if all(file.size for file in logs) else None
        finished, current = 0, logs[0] if logs else None

        def done() -> int:
            return finished + (current.read() if current else 0)

        def each() -> Iterator[AuditEvent]:
            nonlocal finished, current
            for file in logs:
                current = file
                yield from file.events(self.problems)
                current, finished = None, finished + file.size

        return progress(each(), "replaying", total, done if total else None)

    def _of_reviews(self, file: LogFile) -> Iterator[LoggedRequest]:
        for place, text in reviews_of(file):
            self.reviews += 1
            try:
                yield _logged(read_recording(text), as_stored=self._as_stored)
            except PolicydError as error:
                message = str(error)
                self.findings.append(
                    Finding(source=place, message=message, hint=error.hint, rule="unreadable")
                )


def _logged(recording: Recording, *, as_stored: bool) -> LoggedRequest:
    """Return a recorded review as a request of a log."""
    request, answer = recording.request, recording.answer
    if as_stored and answer is not None and answer.result is not None:
        request = msgspec.structs.replace(request, object=raw(answer.result))
    return logged_request(request, refused=answer is not None and not answer.allowed)


def logged_request(
    request: AdmissionRequest, *, refused: bool = False, owner: tuple[str, str] | None = None
) -> LoggedRequest:
    """Return a request as one of a log.

    Args:
        request: The request.
        refused: Whether it was refused then.
        owner: The topmost controller of the object; its own controller if left out.
    """
    head = head_of(request.object)
    if not head.kind:
        head = head_of(request.old_object)
    name = request.name or head.metadata.name
    shown = name or f"{head.metadata.generate_name}*"
    namespace = "" if request.kind.kind == "Namespace" else request.namespace
    key = LoggedKey(request.resource.group, request.resource.resource, namespace, name)
    return LoggedRequest(
        request=request,
        key=key,
        name=shown,
        owner=owner or head.controller or (request.kind.kind, shown),
        controlled=head.controller is not None,
        queue=(head.metadata.labels or {}).get(QUEUE_NAME, ""),
        refused=refused,
        time="",
    )


def _look_up(impact: Impact, given: ReplayOptions, findings: list[Finding]) -> None:
    """Find out which refused objects exist in the cluster."""
    wanted = {
        (key.group, found.version, key.resource.partition("/")[0])
        for key, found in impact.refused.items()
    }

    async def read(reader: Reader, _namespace: str) -> dict[tuple[str, str], set[LoggedKey]]:
        found: dict[tuple[str, str], set[LoggedKey]] = {}
        for group, version, plural in sorted(wanted):
            try:
                names = await _existing(reader, group, version, plural)
            except ForbiddenError as error:
                name = f"{plural}.{group}" if group else plural
                what = f"which refused {name} exist now is not asked"
                findings.append(missing(what, error, severity="warning"))
            else:
                found.setdefault((group, plural), set()).update(names)
        return found

    if not wanted:
        return
    existing = read_cluster(given, read)

    def exists(key: LoggedKey) -> bool | None:
        plural = key.resource.partition("/")[0]
        known = existing.get((key.group, plural))
        return None if known is None else key._replace(resource=plural) in known

    impact.exist(exists)


async def _existing(reader: Reader, group: str, version: str, plural: str) -> set[LoggedKey]:
    """Return the objects of a resource in the cluster, without pods that have ended."""
    served = await served_resources(reader, f"{group}/{version}" if group else version)
    resource = next((each for each in served if each.plural == plural), None)
    found: set[LoggedKey] = set()
    if resource is None:
        return found
    async for page in pages(reader, resource, into=dict, limit=_PAGE):
        for item in page.items:
            metadata = item.get("metadata") or {}
            if (item.get("status") or {}).get("phase") in _ENDED and plural == "pods":
                continue
            names = metadata.get("namespace", ""), metadata.get("name", "")
            found.add(LoggedKey(group, plural, *names))
    return found
