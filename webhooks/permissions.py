"""What users may do, for policies that ask the `authorizer`: the API server is asked.

Policies are evaluated at once and wait for nothing. So a question whose answer is not known yet is
noted, and answered by an error; what came of it is thrown away. All that was noted is asked for
together, and the review is decided again, until it asks nothing new. Each round answers a question
at least, their number is bounded, and so is the time.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec

from policyd.api.admission import AdmissionRequest, UserInfo
from policyd.api.meta import Json, Wire
from policyd.cel import CelError
from policyd.cel.lib.authorizer import Attributes, Decision
from policyd.clock import Clock
from policyd.engine.deadline import OutOfTime
from policyd.engine.decision import Decision as ReviewDecision
from policyd.kube.client import Writer
from policyd.kube.errors import ApiError
from policyd.kube.resources import SUBJECT_ACCESS_REVIEWS
from webhooks.decisions import Decide

FRESH_SECONDS: Final = 5.0
"""How long an answer counts: the pods of one job ask once, and a right that was taken is gone while
whoever took it still looks."""

MOST_QUESTIONS: Final = 64
"""Questions in one review: twice what the budget of one policy has room for."""

MOST_KEPT: Final = 10_000
"""Answers that are kept at a time."""

ASK_SECONDS: Final = 10.0
"""When a question is given up that nobody waits for any more."""

TURN_SECONDS: Final = 0.02
"""How often one who waits looks at the time."""

_PENDING: Final = Decision(error="not answered yet")

_Key = bytes
"""The question itself, encoded: who, and what."""


class _Status(Wire, frozen=True):
    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _Answered(Wire, frozen=True):
    status: _Status = _Status()


@dataclass(slots=True)
class _Round:
    """What one review has asked so far: decisions, and why there is none."""

    answers: dict[_Key, Decision | str] = field(default_factory=dict)
    unknown: dict[_Key, None] = field(default_factory=dict)


class Permissions:
    """Answers of the API server about permissions, kept for a moment.

    Args of the constructor:
        writer: The API server.
        clock: Says how old an answer is.
    """

    def __init__(self, writer: Writer, *, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._kept: dict[_Key, tuple[float, Decision]] = {}
        self._asking: dict[_Key, asyncio.Task[Decision | str]] = {}
        self._round = _Round()

    async def decide(
        self, decide: Decide, request: AdmissionRequest, out_of_time: OutOfTime
    ) -> ReviewDecision:
        """Decide on a request, with all that it asks answered, or known to be unanswered."""
        own = _Round()
        while True:
            self._round = own  # deciding waits for nothing, so that no other review comes between
            decision = decide(request, out_of_time)
            if not own.unknown:
                return decision
            await self._answer(own, out_of_time)

    def authorize(self, user: UserInfo, permission: Attributes) -> Decision:
        """Say whether a user may do something, or that it is to be asked first.

        Raises:
            CelError: If it was asked, and there is no answer, or it is one question too many.
        """
        own = self._round
        key = msgspec.json.encode(question(user, permission))
        answer = own.answers.get(key) or self._known(key)
        if answer is None and len(own.answers) + len(own.unknown) >= MOST_QUESTIONS:
            answer = f"more than {MOST_QUESTIONS} questions in one review"
        elif answer is None:
            own.unknown[key] = None
            return _PENDING
        else:
            own.answers[key] = answer
        if isinstance(answer, str):
            raise CelError(f"the authorizer did not answer: {answer}")
        return answer

    def _known(self, key: _Key) -> Decision | None:
        until, answer = self._kept.get(key, (0.0, None))
        return answer if until > self._clock.monotonic() else None

    async def _answer(self, own: _Round, out_of_time: OutOfTime) -> None:
        asked = {key: self._ask(key) for key in own.unknown}
        own.unknown.clear()
        pending = set(asked.values())
        while pending and not out_of_time():
            _, pending = await asyncio.wait(pending, timeout=TURN_SECONDS)
        for key, task in asked.items():
            own.answers[key] = task.result() if task.done() else "no answer in time"

    def _ask(self, key: _Key) -> "asyncio.Task[Decision | str]":
        """Ask, once for all who want to know."""
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._asked(key))
        return task

    async def _asked(self, key: _Key) -> Decision | str:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                body = {"spec": msgspec.json.decode(key)}
                found = await self._writer.create(SUBJECT_ACCESS_REVIEWS, body, into=_Answered)
        except TimeoutError:
            return f"nothing within {ASK_SECONDS:.0f} s"
        except ApiError as error:
            return str(error)
        finally:
            del self._asking[key]
        status = found.status
        answer = Decision(status.allowed, status.reason, status.evaluation_error)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()  # what is still needed is asked for again
        self._kept[key] = self._clock.monotonic() + FRESH_SECONDS, answer
        return answer


def question(user: UserInfo, permission: Attributes) -> Json:
    """Return the spec of the SubjectAccessReview that asks it, what is empty left out."""
    return _given(_who(user, permission.service_account) | _what(permission))


def _who(user: UserInfo, service_account: str) -> dict[str, Json]:
    if service_account:
        namespace, _, name = service_account.partition("/")
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    return {
        "user": user.username,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }


def _what(permission: Attributes) -> dict[str, Json]:
    if permission.path:
        path = {"path": permission.path, "verb": permission.verb}
        return {"nonResourceAttributes": path}
    names = ("namespace", "verb", "group", "resource", "subresource", "name")
    asked = {name: getattr(permission, name) for name in names} | {"version": "*"}
    if permission.field_selector:
        asked["fieldSelector"] = {"rawSelector": permission.field_selector}
    if permission.label_selector:
        asked["labelSelector"] = {"rawSelector": permission.label_selector}
    return {"resourceAttributes": _given(asked)}


def _given(fields: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value}
