"""The policies in force: read from files and from the API server, swapped as a whole.

Policies stay in force until their replacement can be used. A file or object that an edit breaks
keeps its last good policies. Without any, a placeholder denies the requests that the broken
policy was to guard, as its failurePolicy says: a typing error allows nothing.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from policyd.api.admission import AdmissionRequest
from policyd.api.makers import USUAL, Makers
from policyd.api.meta import Json
from policyd.api.policy import GROUP, POLICY_GROUPS, is_policy
from policyd.clock import SystemClock, cpu_limit
from policyd.dialects.kyverno.entries import Entries
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.kyverno.functions.providers import ClusterReads, ImageData
from policyd.dialects.kyverno.load import is_kyverno_group
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import Loaded, gather, load_document, load_policies, unusable
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PHASES, Phase, PolicySet
from policyd.engine.model.compiled import OWN, CompiledBinding, CompiledPolicy
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import ALLOWED, Decision
from policyd.engine.model.dialects import DEFAULT_DIALECT, Dialect, Volatile
from policyd.engine.model.params import StoredParams
from policyd.engine.model.queue_facts import QueueFacts, no_queue_facts
from policyd.engine.model.surroundings import (
    Authorize,
    ClaimLookup,
    PolicyContext,
    deny_all_permissions,
    no_claims,
)
from policyd.engine.objects.match import NamespaceLookup
from policyd.engine.remember.remembering import MOST_DECISIONS, Remembering
from policyd.errors import ConfigurationError
from policyd.kube.pace import Pace
from policyd.policy_files import FileError, LeftOut, policy_files
from webhooks.certificate.files import read_file
from webhooks.external_data.web import Web
from webhooks.metrics import WebhookMetrics
from webhooks.policies.kyverno_reviews import validate_kyverno
from webhooks.policies.own_policies import validate_own
from webhooks.policies.params import Params
from webhooks.policies.stored import ADDITIONS, PolicyKey, PolicyLimits, StoredPolicy, guards

log = structlog.get_logger(__name__)

FILE: Final = "file"
"""The kind in the keys of files."""

_CLOCK = SystemClock()
_DIALECT = dialect_of(volatile=Volatile(now=lambda: int(_CLOCK.now() * 1e9)))
"""Policies of every format, which may read the clock."""


Judged = Callable[[StoredPolicy, Loaded, int], None]
"""Takes a policy, the result of its load, and the number of the load."""


class Assembled(NamedTuple):
    """Policies that are put together, and not in force yet.

    Attributes:
        policies: All of them.
        remembering: The decisions with a cache, by phase.
        params: Objects beside policies in files.
        known: How many policies there are, whether or not anything binds them.
        loads: How many loads of policies of the API server are part of it.
    """

    policies: PolicySet
    remembering: Mapping[Phase, Remembering]
    params: StoredParams
    known: int
    loads: int


class PoliciesInForce:
    """All policies in force. A review that runs keeps the set it began with."""

    def __init__(  # noqa: PLR0913 - all that policies may ask about
        self,
        *,
        namespaces: NamespaceLookup,
        metrics: WebhookMetrics,
        params: Params | None = None,
        authorize: Authorize = deny_all_permissions,
        claims: ClaimLookup = no_claims,
        reads: ClusterReads | None = None,
        http: Web | None = None,
        images: ImageData | None = None,
        remember: int = MOST_DECISIONS,
        makers: Makers = USUAL,
        queues: Callable[[], QueueFacts] = no_queue_facts,
        limits: PolicyLimits | None = None,
        changed: Callable[[], None] = lambda: None,
        judged: Judged | None = None,
        kyverno: bool = False,
        exceptions: Collection[str] = (),
    ) -> None:
        """Begin with none.

        Args:
            namespaces: Finds the Namespace object of a request's namespace.
            metrics: Where policies are counted.
            params: The params of policies; those of files only if left out.
            authorize: Tells the permissions of users.
            claims: Returns specifications of claims.
            reads: The objects of the cluster that Kyverno's policies may read.
            http: The HTTP requests of these, and of GlobalContextEntries.
            images: The data of images for these.
            makers: The accounts that create the children of other objects.
            queues: Returns the facts of the queues; unknown ones if left out.
            remember: How many decisions on pods are remembered in each phase.
            limits: How many policies of the API server are loaded.
            changed: Called after each change of the policies in force.
            judged: Called after each load of a policy of the API server, in the thread of loads.
            kyverno: Whether policies of Kyverno's are refused that Kyverno would refuse.
            exceptions: The namespaces whose PolicyExceptions count.
        """
        self._namespaces = namespaces
        self._metrics = metrics
        self._params = params or Params(None, pace=Pace())
        self._authorize = authorize
        self._claims = claims
        self._reads = reads
        self._http = http
        self._images = images
        self._remember = remember
        self._makers = makers
        self._queues = queues
        self._changed = changed
        self._judged = judged
        self._kyverno = kyverno
        self._exceptions = exceptions
        self._loads = 0
        self.limits = limits or PolicyLimits()
        """Of the API server's policies that are loaded."""
        self._loaded: dict[PolicyKey, Loaded] = {}
        self._mistakes: dict[PolicyKey, int] = {}
        self._names_only: dict[PolicyKey, StoredPolicy] = {}
        self.beside = False
        """Whether changes are taken in a thread, and put in force by `put_in_force` alone."""
        self._assembled: Assembled | None = None
        self._assembling = threading.Lock()
        self.shadowed = False
        """Whether there are shadows, as of the last decision."""

    @property
    def in_force(self) -> PolicySet:
        """All policies together, put together anew after any number of changes."""
        return self._current().policies

    def _current(self) -> Assembled:
        """Return the policies in force; any thread may call it."""
        made = self._assembled
        if made is None:
            with self._assembling:
                made = self._assembled
                if made is None:
                    made = self.assemble()
                    self._use(made)
        return made

    def put_in_force(self, assembled: Assembled) -> None:
        """Decide by other policies from now on."""
        self._use(assembled)
        self._notify()

    def _use(self, assembled: Assembled) -> None:
        self._assembled = assembled
        self._params.files = assembled.params
        self._metrics.policies.set(assembled.known)
        self.shadowed = bool(assembled.policies.shadows)

    def assemble(self) -> Assembled:
        """Put all policies together that are loaded; nothing is decided by them yet."""
        loads = self._loads
        files = gather(loaded for key, loaded in self._loaded.items() if key.kind == FILE)
        stored = gather(loaded for key, loaded in self._loaded.items() if key.kind != FILE)
        chosen = _by_name(
            (
                *files.policies,
                *files.placeholders,
                *stored.policies,
                *stored.placeholders,
                *guards(self._names_only.values()),
            )
        )
        bindings = (*files.bindings, *files.binding_placeholders)
        taken = {binding.name for binding in bindings if binding.policy_kind == OWN}
        others = (*stored.bindings, *stored.binding_placeholders)
        surroundings = PolicyContext(
            namespaces=self._namespaces,
            params=self._params,
            authorize=self._authorize,
            claims=self._claims,
            now=_CLOCK.now,
            makers=self._makers,
            queues=self._queues,
            extra=kyverno_values(
                resources=self._reads,
                http=self._http,
                images=self._images,
                global_context=self._entries((*stored.objects, *files.objects)),
            ),
        )
        policies = PolicySet(
            chosen.values(),
            bindings=(*bindings, *(other for other in others if other.name not in taken)),
            exceptions=(*files.exceptions, *stored.exceptions),
            surroundings=surroundings,
        )
        count = self._metrics.recalled_decisions.labels
        remembering = {
            phase: Remembering(policies, phase, most=self._remember, recalled=count(phase).inc)
            for phase in PHASES
        }
        usable = sum(not policy.unusable for policy in chosen.values())
        return Assembled(policies, remembering, StoredParams(files.objects), usable, loads)

    def _entries(self, objects: Iterable[Json]) -> Entries | None:
        return Entries(objects, self._reads, self._http) if self._reads and self._http else None

    @property
    def loads(self) -> int:
        """How many loads of policies of the API server are in force."""
        return self._current().loads

    @property
    def loaded(self) -> tuple[CompiledPolicy, ...]:
        """The policies in force, and their shadows."""
        return self.in_force.known

    def mutate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Say how the object is to be changed."""
        return self._decide("mutate", request, out_of_time)

    def validate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Return all objections to the request; if its object is a policy, the mistakes in it."""
        if request.kind.group == GROUP:
            return validate_own(request, no_room_reason=self.limits.no_room_reason)
        decision = self._decide("validate", request, out_of_time)
        if not self._kyverno or not is_kyverno_group(request.kind.group):
            return decision
        own = validate_kyverno(request, partial(_loaded, dialect=_DIALECT), self._exceptions)
        return replace(
            decision,
            denials=(*decision.denials, *own.denials),
            warnings=(*decision.warnings, *own.warnings),
        )

    def _decide(self, phase: Phase, request: AdmissionRequest, out_of_time: OutOfTime) -> Decision:
        """Ask all but about policies: one that refuses everything could not be repaired."""
        if request.resource.group in POLICY_GROUPS and is_policy(request.resource):
            return ALLOWED
        made = self._assembled or self._current()
        return made.remembering[phase].decide(request, out_of_time)

    def read_files(self, paths: Iterable[Path]) -> None:
        """Read all policy files under `paths` anew.

        Raises:
            ConfigurationError: If a path is not there, or cannot be read.
        """
        left_out: list[PolicyKey] = []

        def leave_out(file: Path, why: str) -> None:
            log.warning("file_left_out", file=str(file), reason=why)
            left_out.append(_of_file(file))

        files = {_of_file(file): _loaded_from(file) for file in files_of(paths, leave_out)}
        for key in [key for key in self._mistakes if key.kind == FILE and key not in files]:
            self._forget(key)
        for key, loaded in files.items():
            last = self._loaded.get(key)
            self._mistakes[key] = _note(loaded.findings)
            self._loaded[key] = _last_good(last, loaded) if last and loaded.broken else loaded
        self._mistakes |= dict.fromkeys(left_out, 1)
        self._swap()

    def take(self, policy: StoredPolicy) -> None:
        """Load a policy or binding of the API server that is new or changed."""
        key, last = policy.key, self._loaded.get(policy.key)
        try:
            document = policy.document
        except RecursionError:
            policy = policy.only_named("it is nested too deep")
            document = policy.document
        if policy.kind in ADDITIONS and policy.unusable:
            log.warning("kyverno_left_out", object=key, reason=policy.unusable)
            self.drop(key)
            return
        dialect = DEFAULT_DIALECT if policy.is_own else _DIALECT
        if policy.unusable:
            loaded = unusable(document, policy.unusable, dialect)
        else:
            loaded = _loaded(document, dialect)
        self._mistakes[key] = _note(loaded.findings)
        is_good = last is not None and bool(last.policies or last.bindings)
        # A policy beyond the limits loses its last good version, too, which takes memory.
        if policy.unusable or not (loaded.broken and is_good):
            self._loaded[key] = loaded
        self._names_only.pop(key, None)
        if policy.name_only:
            self._names_only[key] = policy
        self._loads += 1
        if self._judged is not None and policy.kind not in ADDITIONS:
            self._judged(policy, loaded, self._loads)
        self._swap()

    def drop(self, key: PolicyKey) -> None:
        """Remove a policy or binding that the API server no longer has."""
        self._forget(key)
        self._swap()

    def _forget(self, key: PolicyKey) -> None:
        self._loaded.pop(key, None)
        self._mistakes.pop(key, None)
        self._names_only.pop(key, None)

    def _swap(self) -> None:
        self._metrics.policy_loads.inc()
        self._metrics.policy_mistakes.set(sum(self._mistakes.values()))
        if not self.beside:
            self._assembled = None
            self._notify()

    def _notify(self) -> None:
        self._params.changed.set()
        self._changed()


def _of_file(file: Path) -> PolicyKey:
    return PolicyKey(FILE, "", str(file))


def _note(findings: Sequence[Finding]) -> int:
    """Log the findings; return the number of errors."""
    errors = [finding for finding in findings if finding.severity == "error"]
    for finding in findings:
        log.warning(
            "policy_rejected" if finding in errors else "policy_doubtful",
            place=finding.place,
            reason=finding.message,
            hint=finding.hint,
        )
    return len(errors)


def _last_good(last: Loaded, broken: Loaded) -> Loaded:
    """Return the last good policies of a file, and new ones of the version that is broken."""
    known = {policy.id for policy in last.policies}
    bound = {(binding.policy_kind, binding.name) for binding in last.bindings}

    def new(policies: Iterable[CompiledPolicy]) -> tuple[CompiledPolicy, ...]:
        return tuple(policy for policy in policies if policy.id not in known)

    def unbound(bindings: Iterable[CompiledBinding]) -> tuple[CompiledBinding, ...]:
        return tuple(b for b in bindings if (b.policy_kind, b.name) not in bound)

    return replace(
        last,
        policies=(*last.policies, *new(broken.policies)),
        bindings=(*last.bindings, *unbound(broken.bindings)),
        placeholders=new(broken.placeholders),
        binding_placeholders=unbound(broken.binding_placeholders),
    )


def files_of(paths: Iterable[Path], left_out: LeftOut = lambda _file, _why: None) -> list[Path]:
    """Return the policy files under `paths`, and tell of those that are left out.

    Raises:
        ConfigurationError: If a path is not there.
    """
    paths = tuple(paths)
    for path in paths:
        if not path.exists():
            raise ConfigurationError(
                f"`{path}` not found", hint="`--policies` takes files and folders"
            )
    return policy_files(paths, left_out)


def _loaded(document: Document, dialect: Dialect = DEFAULT_DIALECT) -> Loaded:
    """Load a document; one that fails gets a placeholder, and does not affect others."""
    try:
        return load_document(document, dialect, cpu_limit())
    except Exception as error:  # a bug must not let through the requests that the policy guards
        log.exception("policy_not_loaded", place=document.source)
        return unusable(document, f"policyd could not load it: {error!r}", dialect)


def _loaded_from(file: Path) -> Loaded:
    """Load the policies of a file; another file is an error like any other."""
    try:
        return load_policies(read_file(file), str(file), _DIALECT, _loaded)
    except FileError as error:
        return Loaded(findings=(Finding(source=str(file), message=str(error), hint=error.hint),))


def _by_name(policies: Iterable[CompiledPolicy]) -> Mapping[str, CompiledPolicy]:
    """Choose one policy for each name: the first, files before objects.

    Users who may write Policy objects cannot replace the policies of the installation.
    """
    chosen: dict[str, CompiledPolicy] = {}
    for compiled in policies:
        first = chosen.setdefault(compiled.id, compiled)
        if first is not compiled:
            log.warning("policy_shadowed", policy=compiled.name, by=first.place)
    return chosen
