"""Define a decision: the verdict of all policies on a request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import STATUS_CODES, Enforcement, Reason
from policyd.patch.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A reason to deny the request, and a remedy.

    Attributes:
        policy: The policy that denies.
        message: The sentence for people.
        validation: The validation's name, or its place in the policy; empty if the policy as a
            whole could not be evaluated.
        remedy: The action that the policy proposes to the user, if any.
        reason: The API server's word for the kind of error.
        path: Path of the field it is about, such as one of several pod templates; empty if it is
            about the object as a whole.
        lead: The beginning of the message in the API server's words, for its kinds and Kyverno's.
        kind: The kind of the policy.
        origin: The unique identifier of the policy.
        status: The HTTP status of the refusal, if it does not follow from the reason.
        failed: Whether the policy could not be evaluated, so that this is not its verdict.
        actions: The effects of an objection by its enforcement.
    """

    policy: str
    message: str
    validation: str = ""
    remedy: str = ""
    reason: Reason | Literal["InternalError"] = "Invalid"
    path: str = ""
    lead: str = ""
    kind: str = "Policy"
    origin: str = ""
    status: int = 0
    failed: bool = False
    actions: tuple[Enforcement, ...] = ()

    @property
    def code(self) -> int:
        """The HTTP status of the refusal."""
        if self.reason == "InternalError":
            return 500
        return self.status or STATUS_CODES[self.reason]

    @property
    def advice(self) -> str:
        """The message and the remedy, without the path."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def __str__(self) -> str:
        if self.lead:
            return f"{self.lead}: {self.message}"
        if self.reason == "InternalError":
            return self.message
        place = f"{self.path}: " if self.path else ""
        return f"{self.policy}: {place}{self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A policy that could not be evaluated, whether or not that refuses the request."""

    policy: str
    message: str
    ignored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict of all policies on one request.

    Attributes:
        denials: The reasons for refusal, by policy name; the request is allowed if there are none.
        further: The number of objections that are left out of these and of the warnings.
        warnings: The warnings for the user of an allowed request.
        audit_annotations: The entries for the audit log.
        operations: The changes, to be applied in order to the object as it came.
        matched: The policies that concerned the request, selectors and conditions included.
        changed: The policies that changed the object.
        failures: The policies that could not be evaluated.
        objections: The validations that are not true, with any enforcement.
        exempted: The exemptions by exceptions: the policy, and the reason.
        object: The object with the operations applied, for later readers; UNSET if no
            policy needed it decoded. Not part of the verdict.
    """

    denials: tuple[Denial, ...] = ()
    further: int = 0
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    matched: tuple[str, ...] = ()
    changed: tuple[str, ...] = field(default=(), compare=False, repr=False)
    failures: tuple[Failure, ...] = ()
    objections: tuple[Denial, ...] = field(default=(), compare=False, repr=False)
    exempted: tuple[str, ...] = field(default=(), compare=False, repr=False)
    object: Json | msgspec.UnsetType = field(default=msgspec.UNSET, compare=False, repr=False)

    @property
    def allowed(self) -> bool:
        """Whether no policy denies the request."""
        return not self.denials


ALLOWED = Decision()
