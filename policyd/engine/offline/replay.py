"""Replay recorded requests with changed policies, and report different decisions.

A recording is an AdmissionReview as the API server sent it, with the response if it was kept.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from policyd.api.admission import AdmissionRequest, decode_object, parse_review
from policyd.api.meta import Json
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.decision import Decision
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.shadows import ShadowDifference, shadow_differences
from policyd.errors import PolicydError
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, difference

Kind = Literal["denied", "allowed", "changed", "same"]
"""The kind of a difference: now denied, no longer denied, another message or object, none."""


class RecordingError(PolicydError):
    """Something is not a recorded AdmissionReview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedAnswer:
    """The decision on a request, recorded or computed.

    Attributes:
        allowed: Whether it was let through.
        denials: The denials; None if they are not known in policyd's words.
        warnings: The warnings for the user; None if not known.
        result: The object as it was stored; None if it is not known, or not stored.
    """

    allowed: bool
    denials: tuple[str, ...] | None = None
    warnings: tuple[str, ...] | None = None
    result: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A request, and the recorded answer if there is one."""

    request: AdmissionRequest
    answer: ReplayedAnswer | None

    @property
    def name(self) -> str:
        """The subject of the request: operation, kind, namespace and name."""
        request = self.request
        generated = value_at(decode_object(request.object), ("metadata", "generateName"))
        name = request.name or f"{generated or ''}*"
        where = f"{request.namespace}/{name}" if request.namespace else name
        return f"{request.operation} {request.kind.kind} {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The differences of one request, the new decision, and the verdicts of shadows."""

    recording: Recording
    kind: Kind
    before: ReplayedAnswer
    after: ReplayedAnswer
    decision: Decision
    shadows: tuple[ShadowDifference, ...] = ()

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The difference of the stored object from the recorded one."""
        before, after = self.before.result, self.after.result
        return () if before is None or after is None else tuple(difference(before, after))


class _Response(msgspec.Struct, frozen=True):
    allowed: bool
    patch: str = ""


class _Answered(msgspec.Struct, frozen=True):
    response: _Response | None = None


def recordings(content: bytes) -> Iterator[bytes]:
    """Yield the reviews of a file: one, or one on each line."""
    lines = [line for line in content.splitlines() if line.strip()]
    if len(lines) > 1 and _is_json(lines[0]):
        yield from lines
    elif lines:
        yield content


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def read_recording(text: bytes) -> Recording:
    """Read one review, with its response if it has one.

    Raises:
        RecordingError: If it is none.
    """
    try:
        request = parse_review(text)
        response = msgspec.json.decode(text, type=_Answered).response
        return Recording(request=request, answer=_recorded(request, response))
    except (PolicydError, msgspec.DecodeError, ValueError) as error:  # the patch is not base64
        hint = "a recording is JSON: an AdmissionReview, or one on each line"
        raise RecordingError(str(error), hint=hint) from error


def _recorded(request: AdmissionRequest, response: _Response | None) -> ReplayedAnswer | None:
    if response is None:
        return None
    result = None
    if response.patch:
        patch = base64.b64decode(response.patch, validate=True)
        operations = msgspec.json.decode(patch, type=list[Operation])
        result = apply_json_patch(decode_object(request.object), operations)
    return ReplayedAnswer(allowed=response.allowed, result=result)


def compare(
    recording: Recording,
    new: PolicySet,
    old: PolicySet | None,
    decide: Callable[[PolicySet, AdmissionRequest], Decision] = PolicySet.review,
) -> Difference:
    """Say how a request would be answered by the new policies, and how that differs.

    Args:
        recording: The request.
        new: The policies to be.
        old: The policies that are; without them, the recorded answer counts, and without that
            nothing was refused or changed.
        decide: Decides by policies, and by what else is to count.
    """
    request = recording.request
    decision = decide(new, request)
    after = _answer(request, decision)
    if old is not None:
        before = _answer(request, decide(old, request))
    else:
        before = recording.answer or _answer(request, Decision())
    return Difference(
        recording=recording,
        kind=_kind(before, after),
        before=before,
        after=after,
        decision=decision,
        shadows=tuple(shadow_differences(new, request, decision)),
    )


def _answer(request: AdmissionRequest, decision: Decision) -> ReplayedAnswer:
    obj = decode_object(request.object)
    return ReplayedAnswer(
        allowed=decision.allowed,
        denials=tuple(map(str, decision.denials)),
        warnings=decision.warnings,
        result=apply_json_patch(obj, decision.operations) if decision.operations else obj,
    )


def _kind(before: ReplayedAnswer, after: ReplayedAnswer) -> Kind:
    if before.allowed != after.allowed:
        return "allowed" if after.allowed else "denied"
    pairs = (
        (before.denials, after.denials),
        (before.warnings, after.warnings),
        # A refused object is not stored.
        (before.result, after.result if after.allowed else before.result),
    )
    return "changed" if any(a is not None and a != b for a, b in pairs) else "same"
