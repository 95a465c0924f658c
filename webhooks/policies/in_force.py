"""The policies in force: read from files and from the API server, swapped as a whole.

What was in force stays so until what replaces it can be used. A file that is broken by an edit, or
an object that is, keeps its last good policies. Where there are none, what stands in for a broken
policy refuses what that was to guard, as its failurePolicy says: a typing mistake lets nothing in.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import structlog

from policyd.api.admission import AdmissionRequest
from policyd.api.makers import USUAL, Makers
from policyd.api.meta import Json
from policyd.api.policy import GROUP, BindingObject, PolicyObject
from policyd.clock import SystemClock, cpu_limit
from policyd.dialects.kyverno.entries import Entries
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.kyverno.functions.providers import ClusterReads, ImageData
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import Loaded, gather, load_document, load_policies, unusable
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.policy_set import PHASES, Phase, PolicySet
from policyd.engine.model.compiled import OWN, CompiledBinding, CompiledPolicy
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import ALLOWED, Decision
from policyd.engine.model.dialects import DEFAULT_DIALECT, Chance, Dialect
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import Authorize, PolicyContext, authorize_nobody
from policyd.engine.objects.match import NamespaceLookup
from policyd.engine.remember.remembering import MOST_DECISIONS, Remembering
from policyd.errors import ConfigurationError
from policyd.kube.pace import Pace
from policyd.policy_files import FileError, LeftOut, policy_files
from webhooks.certificate.files import read_file
from webhooks.external_data.web import Web
from webhooks.metrics import WebhookMetrics
from webhooks.policies.own_policies import validate_own
from webhooks.policies.params import Params
from webhooks.policies.shares import MOST_POLICIES, MOST_POLICY_BYTES, Shares
from webhooks.policies.watched import WholeObject

log = structlog.get_logger(__name__)

_Key = tuple[str, str, str]
"""Kind, namespace and name."""

_CLOCK = SystemClock()
_DIALECT = dialect_of(chance=Chance(now=lambda: int(_CLOCK.now() * 1e9)))
"""Policies of every format, which may ask what time it is."""


class Assembled(NamedTuple):
    """Policies that are put together, and not in force yet.

    Attributes:
        policies: All of them.
        remembering: What they decide by, with a memory, by phase.
        params: Objects beside policies in files.
        known: How many policies there are, whether or not anything binds them.
    """

    policies: PolicySet
    remembering: Mapping[Phase, Remembering]
    params: StoredParams
    known: int


class PoliciesInForce:
    """All policies in force. A review that runs keeps the set it began with."""

    def __init__(  # noqa: PLR0913 - all that policies may ask about
        self,
        *,
        namespaces: NamespaceLookup,
        metrics: WebhookMetrics,
        params: Params | None = None,
        authorize: Authorize = authorize_nobody,
        reads: ClusterReads | None = None,
        http: Web | None = None,
        images: ImageData | None = None,
        remember: int = MOST_DECISIONS,
        makers: Makers = USUAL,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with none.

        Args:
            namespaces: Finds the Namespace object of a request's namespace.
            metrics: Where policies are counted.
            params: What policies are evaluated with; those of files alone if left out.
            authorize: Says what users may do.
            reads: What Kyverno's policies may read of the cluster.
            http: What they, and GlobalContextEntries, may ask by HTTP.
            images: What they may ask of registries.
            makers: Who makes what belongs to others.
            remember: How many decisions on pods are remembered in each phase.
            changed: Called after each change of what is in force.
        """
        self._namespaces = namespaces
        self._metrics = metrics
        self._params = params or Params(None, pace=Pace())
        self._authorize = authorize
        self._reads = reads
        self._http = http
        self._images = images
        self._remember = remember
        self._makers = makers
        self._changed = changed
        self._files: dict[str, Loaded] = {}
        self._objects: dict[str, CompiledPolicy] = {}
        self._bindings: dict[str, CompiledBinding] = {}
        self._kyverno: dict[_Key, Loaded] = {}
        self._shares = Shares(MOST_POLICIES, MOST_POLICY_BYTES)
        self._broken_files: dict[str, int] = {}
        self._broken_objects: dict[str, int] = {}
        self._broken_bindings: dict[str, int] = {}
        self._broken_kyverno: dict[_Key, int] = {}
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
        """Return what is in force, on whichever thread it is asked for."""
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
        self._tell()

    def _use(self, assembled: Assembled) -> None:
        self._assembled = assembled
        self._params.files = assembled.params
        self._metrics.policies.set(assembled.known)
        self.shadowed = bool(assembled.policies.shadows)

    def assemble(self) -> Assembled:
        """Put all policies together that are loaded; nothing is decided by them yet."""
        files = gather((*self._files.values(), *self._kyverno.values()))
        bindings = (*files.bindings, *files.binding_stand_ins)
        chosen = _by_name((*files.policies, *files.stand_ins, *self._objects.values()))
        surroundings = PolicyContext(
            namespaces=self._namespaces,
            params=self._params,
            authorize=self._authorize,
            now=_CLOCK.now,
            makers=self._makers,
            extra=kyverno_values(
                resources=self._reads,
                http=self._http,
                images=self._images,
                global_context=self._entries(files.objects),
            ),
        )
        policies = PolicySet(
            chosen.values(),
            bindings=(*bindings, *self._bindings_of_objects(bindings)),
            exceptions=files.exceptions,
            surroundings=surroundings,
        )
        count = self._metrics.recalled_decisions.labels
        remembering = {
            phase: Remembering(policies, phase, most=self._remember, recalled=count(phase).inc)
            for phase in PHASES
        }
        usable = sum(not policy.unusable for policy in chosen.values())
        return Assembled(policies, remembering, StoredParams(files.objects), usable)

    def _entries(self, objects: Iterable[Json]) -> Entries | None:
        return Entries(objects, self._reads, self._http) if self._reads and self._http else None

    @property
    def loaded(self) -> tuple[CompiledPolicy, ...]:
        """The policies in force, and their shadows."""
        return self.in_force.known

    def mutate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Say how the object is to be changed."""
        return self._decide("mutate", request, out_of_time)

    def validate(self, request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        """Say everything that speaks against the request; of a policy, what is wrong with it."""
        if request.kind.group == GROUP:
            return validate_own(request, lacks_room=self.lacks_room)
        return self._decide("validate", request, out_of_time)

    def _decide(self, phase: Phase, request: AdmissionRequest, out_of_time: OutOfTime) -> Decision:
        """Ask all but about policies: one that refuses everything could not be repaired."""
        if request.kind.group == GROUP:
            return ALLOWED
        made = self._assembled or self._current()
        return made.remembering[phase].decide(request, out_of_time)

    def read_files(self, paths: Iterable[Path]) -> None:
        """Read all policy files under `paths` anew.

        Raises:
            ConfigurationError: If a path is not there, or cannot be read.
        """
        files: dict[str, Loaded] = {}
        self._broken_files.clear()
        for file in files_of(paths, self._note_left_out):
            files[str(file)] = self._read(file)
        self._files = files
        self._swap()

    def take(self, old: PolicyObject | None, new: PolicyObject | None) -> None:
        """Take over a Policy object of the API server that is new, changed, or gone."""
        given = new or old
        assert given is not None, "a change has an object before or after it"
        name = given.metadata.name
        if new is None:
            self._objects.pop(name, None)
            self._broken_objects.pop(name, None)
            self._shares.drop("", ("Policy", name))
            self._swap()
        elif old is None or old.spec != new.spec:
            self._take(name, new)

    def take_binding(self, old: BindingObject | None, new: BindingObject | None) -> None:
        """Take over a PolicyBinding object of the API server that is new, changed, or gone."""
        given = new or old
        assert given is not None, "a change has an object before or after it"
        name = given.metadata.name
        if new is None:
            self._bindings.pop(name, None)
            self._broken_bindings.pop(name, None)
            self._shares.drop("", ("PolicyBinding", name))
        elif old is not None and old.spec == new.spec:
            return
        else:
            loaded = self._load(Document(new.value, name))
            self._broken_bindings[name] = self._note(loaded.findings)
            last = self._bindings.get(name)
            stand_ins = loaded.binding_stand_ins if last is None or last.unusable else ()
            self._bindings |= {b.name: b for b in (*loaded.bindings, *stand_ins)}
        self._swap()

    def take_kyverno(self, old: WholeObject | None, new: WholeObject | None) -> None:
        """Take over one of Kyverno's policies of the API server that is new, changed, or gone."""
        given = new or old
        assert given is not None, "a change has an object before or after it"
        key = given.value["kind"], given.metadata.namespace, given.metadata.name
        if new is None:
            self._kyverno.pop(key, None)
            self._broken_kyverno.pop(key, None)
            self._shares.drop(key[1], (key[0], key[2]))
        elif old is not None and _meant(old) == _meant(new):
            return
        else:
            loaded = self._load(Document(new.value, given.metadata.name), _DIALECT)
            self._broken_kyverno[key] = self._note(loaded.findings)
            last = self._kyverno.get(key)
            if not (loaded.broken and last is not None and last.policies):
                self._kyverno[key] = loaded
        self._swap()

    def _bindings_of_objects(self, files: Iterable[CompiledBinding]) -> list[CompiledBinding]:
        """Return the bindings of the API server, less those that a file has under their name."""
        taken = {binding.name for binding in files if binding.policy_kind == OWN}
        return [binding for name, binding in tuple(self._bindings.items()) if name not in taken]

    def _take(self, name: str, new: PolicyObject) -> None:
        loaded = self._load(Document(new.value, name))
        self._broken_objects[name] = self._note(loaded.findings)
        last = self._objects.get(name)
        stand_ins = loaded.stand_ins if last is None or last.unusable else ()
        for compiled in (*loaded.policies, *stand_ins):
            self._objects[name] = compiled
        self._swap()

    def _load(self, document: Document, dialect: Dialect = DEFAULT_DIALECT) -> Loaded:
        """Load an object of the API server, if there is room for it."""
        if self._shares.put(*_place_of(document), document.value):
            return _loaded(document, dialect)
        return unusable(document, self._too_many(document), dialect)

    def lacks_room(self, document: Document) -> str:
        """Say why a policy of the API server would not be loaded; nothing if it would be."""
        there = self._shares.has_room(*_place_of(document), document.value)
        return "" if there else self._too_many(document)

    def _too_many(self, document: Document) -> str:
        namespace, _ = _place_of(document)
        there = f"namespace `{namespace}` has" if namespace else "there are"
        return f"{there} more policies than are kept ({self._shares.bounds}): have fewer"

    def _note_left_out(self, file: Path, why: str) -> None:
        log.warning("file_left_out", file=str(file), reason=why)
        self._broken_files[str(file)] = 1

    def _read(self, file: Path) -> Loaded:
        loaded = _loaded_from(file)
        self._broken_files[str(file)] = self._note(loaded.findings)
        last = self._files.get(str(file))
        return loaded if last is None or not loaded.broken else _last_good(last, loaded)

    def _note(self, findings: Sequence[Finding]) -> int:
        """Log what is wrong; return how many mistakes keep something from being used."""
        errors = [finding for finding in findings if finding.severity == "error"]
        for finding in findings:
            log.warning(
                "policy_rejected" if finding in errors else "policy_doubtful",
                place=finding.place,
                reason=finding.message,
                hint=finding.hint,
            )
        return len(errors)

    def _swap(self) -> None:
        self._metrics.policy_loads.inc()
        broken = chain(
            self._broken_files.values(),
            self._broken_objects.values(),
            self._broken_bindings.values(),
            self._broken_kyverno.values(),
        )
        self._metrics.policy_mistakes.set(sum(broken))
        if not self.beside:
            self._assembled = None
            self._tell()

    def _tell(self) -> None:
        self._params.changed.set()
        self._changed()


def _place_of(document: Document) -> tuple[str, tuple[str, str]]:
    """Return whose share a policy is part of, and what tells it from others there."""
    metadata = document.value["metadata"]
    return metadata.get("namespace", ""), (document.value["kind"], metadata["name"])


def _last_good(last: Loaded, broken: Loaded) -> Loaded:
    """Return what was in force of a file, with what is new in the one that an edit broke."""
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
        stand_ins=new(broken.stand_ins),
        binding_stand_ins=unbound(broken.binding_stand_ins),
    )


def _meant(policy: WholeObject) -> tuple[Json, ...]:
    """Return what a policy says: its status is not part of it."""
    metadata = policy.value["metadata"]
    return policy.value.get("spec"), metadata.get("labels"), metadata.get("annotations")


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
    """Load a document; one that we fail on has a stand-in, and does not keep others from theirs."""
    try:
        return load_document(document, dialect, cpu_limit())
    except Exception as error:  # a bug: what the policy is to guard is not left open for it
        log.exception("policy_not_loaded", place=document.source)
        return unusable(document, f"policyd could not load it: {error!r}", dialect)


def _loaded_from(file: Path) -> Loaded:
    """Load the policies of a file; one that is no file of policies is a mistake like any other."""
    try:
        return load_policies(read_file(file), str(file), _DIALECT, _loaded)
    except FileError as error:
        return Loaded(findings=(Finding(source=str(file), message=str(error), hint=error.hint),))


def _by_name(policies: Iterable[CompiledPolicy]) -> Mapping[str, CompiledPolicy]:
    """Choose one policy for each name: the first, files before objects.

    Who may write Policy objects may not thereby replace what the installation brings.
    """
    chosen: dict[str, CompiledPolicy] = {}
    for compiled in policies:
        first = chosen.setdefault(compiled.id, compiled)
        if first is not compiled:
            log.warning("policy_shadowed", policy=compiled.name, by=first.place)
    return chosen
