"""Plan the writes that bring generated objects to their state: create, update, delete.

A record says which objects were generated, by their uids. Only those are changed or deleted, since
labels, annotations and field managers of an object are what its writer says they are. The names in
the record are the policy's: an object that a user puts there instead is brought to the generated
state, but it is not deleted. What could not be evaluated stays as it is.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from policyd.api.meta import Json
from policyd.engine.background.record import ObjectName, RecordedObject, name_of
from policyd.engine.objects.workloads import value_at

POLICY_LABEL: Final = "policyd.io/generating-policy"
"""Label of a generated object, for people: `policy_mark` of its policy."""

TRIGGER_LABEL: Final = "policyd.io/generating-trigger"
"""Label of a generated object, for people: the uid of its trigger."""

POLICY_ANNOTATION: Final = "policyd.io/generated-by"
"""Annotation of a generated object: the kind and name of its policy."""

TRIGGER_ANNOTATION: Final = "policyd.io/generated-for"
"""Annotation of a generated object: the kind and name of its trigger."""

StepKind = Literal["create", "update", "delete", "conflict", "record", "forget"]
"""`record` and `forget` change the record alone; a conflict changes nothing."""

_UID: Final = ("metadata", "uid")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that a policy generates for a trigger, labelled with both.

    Attributes:
        policy: The id of the policy.
        trigger: The names of the trigger.
        uid: The uid of the trigger.
        object: The object as it is applied.
        synchronize: Whether it follows its trigger and policy, and is restored.
        orphan: Whether it stays when the policy is deleted.
        created: Whether it is created if it was not generated yet.
    """

    policy: str
    trigger: ObjectName
    uid: str
    object: dict[str, Json]
    synchronize: bool = True
    orphan: bool = False
    created: bool = True

    @property
    def name(self) -> ObjectName:
        """The names of the object."""
        return name_of(self.object)

    def recorded(self, uid: str, state: str = "") -> RecordedObject:
        """Return the entry of the record for it, once it exists with a uid."""
        given = self.policy, str(self.trigger), self.uid, uid, state
        return RecordedObject(*given, self.synchronize, self.orphan)


@dataclass(frozen=True, slots=True)
class GenerationStep:
    """A write, or a conflict that keeps one from being made.

    Attributes:
        kind: What is done.
        name: The object.
        policy: The policy it is done for.
        why: Why, in a few words.
        object: The object as it is applied; as it is, if it is deleted.
        trigger: The kind and names of the trigger.
        entry: The entry of the record once this is done; uid and state are those of before.
        existing: The object as it is.
    """

    kind: StepKind
    name: ObjectName
    policy: str
    why: str
    object: Json
    trigger: str = ""
    entry: RecordedObject | None = None
    existing: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPolicies:
    """The policies that exist, and for which of them it is unknown what they generate.

    Attributes:
        ids: Ids of all policies that exist, the undecided and the invalid ones included.
        kinds: Kinds of policies of which all are known: nothing of another kind's is deleted.
        undecided: Ids of policies that could not be evaluated for all triggers.
        triggers: Ids of policies, each with the uid of a trigger for which it failed.
        outlived: Of policies whose objects outlive their triggers, the uids of those that exist.
    """

    ids: Collection[str] = ()
    kinds: Collection[str] = ()
    undecided: Collection[str] = ()
    triggers: Collection[tuple[str, str]] = ()
    outlived: Mapping[str, Collection[str]] = field(default_factory=dict)

    def undecided_about(self, entry: RecordedObject) -> bool:
        """Tell whether it is unknown if an object is wanted: it stays as it is."""
        return entry.policy in self.undecided or (entry.policy, entry.trigger_uid) in self.triggers

    def outlives(self, entry: RecordedObject) -> bool:
        """Tell whether an object stays although its trigger is gone."""
        existing = self.outlived.get(entry.policy)
        return existing is not None and entry.trigger_uid not in existing


def policy_mark(policy: str) -> str:
    """Return the value of the label for a policy's id, which may be longer than labels."""
    return hashlib.sha256(policy.encode()).hexdigest()[:32]


def labelled(
    obj: Json, policy: str, trigger: Json, *, synchronize: bool = True, orphan: bool = False
) -> Wanted:
    """Return an object with labels and annotations that name its policy and trigger."""
    uid, name = str(value_at(trigger, _UID)), name_of(trigger)
    metadata = obj["metadata"]
    labels = {POLICY_LABEL: policy_mark(policy), TRIGGER_LABEL: uid}
    annotations = {POLICY_ANNOTATION: policy, TRIGGER_ANNOTATION: str(name)}
    made = {
        **metadata,
        "labels": {**(metadata.get("labels") or {}), **labels},
        "annotations": {**(metadata.get("annotations") or {}), **annotations},
    }
    return Wanted(policy, name, uid, {**obj, "metadata": made}, synchronize, orphan)


def plan(
    wanted: Iterable[Wanted],
    existing: Mapping[ObjectName, Json],
    record: Mapping[ObjectName, RecordedObject],
    policies: KnownPolicies,
) -> Iterator[GenerationStep]:
    """Yield the steps that are needed, creations and updates first.

    Args:
        wanted: The objects that policies generate.
        existing: The objects that exist under the names of wanted and of recorded ones.
        record: What was generated.
        policies: The policies that exist.
    """
    taken: dict[ObjectName, Wanted] = {}
    # An object stays with the trigger it was generated for, whatever the order of the triggers.
    for each in sorted(wanted, key=lambda each: not _owns(record.get(each.name), each)):
        first = taken.setdefault(each.name, each)
        if first is not each:
            why = f"generated by {first.policy} for {first.trigger} already"
            yield GenerationStep("conflict", each.name, each.policy, why, each.object)
            continue
        yield from _brought(each, existing.get(each.name), record.get(each.name), policies)
    for name, entry in record.items():
        if name not in taken and not policies.undecided_about(entry):
            yield from _ended(name, entry, existing.get(name), policies)


def _owns(entry: RecordedObject | None, wanted: Wanted) -> bool:
    return entry is not None and (entry.policy, entry.trigger_uid) == (wanted.policy, wanted.uid)


def _is_recorded(existing: Json, entry: RecordedObject | None) -> bool:
    """Tell whether an object is the one that was generated, and not another of its name."""
    return entry is not None and bool(entry.uid) and value_at(existing, _UID) == entry.uid


def _brought(
    wanted: Wanted, existing: Json, entry: RecordedObject | None, policies: KnownPolicies
) -> Iterator[GenerationStep]:
    """Yield the step that brings an object to its wanted state, if one is needed."""
    uid = str(value_at(existing, _UID) or "")
    own = entry if _owns(entry, wanted) else None
    if own is None and not wanted.created:
        return
    kind: StepKind | None = None
    why, made = "it is as wanted", wanted.recorded(uid)
    if own is not None and not wanted.synchronize and (own.uid or existing is not None):
        made = wanted.recorded(own.uid, own.state)
        kind = None if own == made else "record"
    elif existing is None:
        kind, why = "create", f"for {wanted.trigger}"
    elif own is None and not _is_inherited(wanted, existing, entry, policies):
        kind, why = (
            "conflict",
            "it exists, and was not generated by this policy for this trigger",
        )
    elif value_at(existing, ("metadata", "deletionTimestamp")) is None:
        made = wanted.recorded(uid, state_of(existing, wanted.object))
        kind, why = _restored(wanted, existing, own, made)
    if kind is not None:
        given = wanted.name, wanted.policy, why, wanted.object, str(wanted.trigger), made
        yield GenerationStep(kind, *given, existing)


def _restored(
    wanted: Wanted, existing: Json, own: RecordedObject | None, made: RecordedObject
) -> tuple[StepKind | None, str]:
    """Return the step for a generated object that exists, and why."""
    if own is None or (own.uid, own.state) != (made.uid, made.state):
        return "update", "it differs"
    for part in ("labels", "annotations"):
        actual = value_at(existing, ("metadata", part))
        for key, text in wanted.object["metadata"][part].items():
            if not isinstance(actual, dict) or actual.get(key) != text:
                return "update", f"its {part} differ"
    return (None if own == made else "record"), "it is as wanted"


def state_of(stored: Json, wanted: Json) -> str:
    """Return a digest of an object as the API server stores it, and as it is wanted.

    The digest is recorded after each write. It differs as soon as anything but metadata and status
    is changed, added or removed, or the policy generates something else.
    """
    content = {k: v for k, v in stored.items() if k not in {"metadata", "status"}}
    text = msgspec.json.encode([content, wanted], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:24]


def replacement(wanted: Json, existing: Json) -> Json:
    """Return the object that an existing one is replaced by: as wanted, and nothing added to it.

    Its version binds the write to what was read. Metadata that others have added stays.
    """
    given, metadata = wanted["metadata"], dict(existing["metadata"])
    for part in ("labels", "annotations"):
        metadata[part] = {**(metadata.get(part) or {}), **given[part]}
    status = {"status": existing["status"]} if "status" in existing else {}
    return {**status, **wanted, "metadata": {**metadata, **_others(given)}}


def _others(metadata: Json) -> Json:
    return {k: v for k, v in metadata.items() if k not in {"labels", "annotations"}}


def _is_inherited(
    wanted: Wanted, existing: Json, entry: RecordedObject | None, policies: KnownPolicies
) -> bool:
    """Tell whether an object was generated by the same policy for a trigger that is gone."""
    return (
        entry is not None
        and entry.policy == wanted.policy
        and _is_recorded(existing, entry)
        and not policies.undecided_about(entry)
    )


def _ended(
    name: ObjectName,
    entry: RecordedObject,
    existing: Json,
    policies: KnownPolicies,
) -> Iterator[GenerationStep]:
    """Yield the step for an object that is wanted no more."""
    if entry.policy in policies.ids:
        stays, why = not entry.synchronize, "its trigger is gone, or generates it no more"
    elif entry.policy.partition("/")[0] in policies.kinds:
        stays, why = entry.orphan or not entry.synchronize, "its policy is gone"
    else:
        return
    gone = not _is_recorded(existing, entry)
    if policies.outlives(entry) and entry.synchronize and not gone:
        return  # it ends with its policy
    kind: StepKind = "forget" if stays or gone else "delete"
    yield GenerationStep(kind, name, entry.policy, why, existing, entry.trigger)
