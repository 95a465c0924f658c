"""A span for each review, with the policies that concerned it as events."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from policyd.admission.handler import AdmissionHandler
from policyd.api.admission import AdmissionRequest
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import Decision
from policyd.tracing import MOST_CHARACTERS, MOST_EVENTS, Tracer
from webhooks.app import Answer

Event = tuple[str, dict[str, str | bool]]
"""Its name, and its attributes."""


def traced(handler: AdmissionHandler, tracer: Tracer) -> Answer:
    """Return what `handler.answer` does, with a span for each review."""

    async def answer(body: bytes, out_of_time: OutOfTime) -> bytes:
        span = tracer.start_span(f"review {handler.phase}")

        def observed(request: AdmissionRequest, decision: Decision) -> None:
            if span.is_recording():
                span.set_attributes(_about(request, decision))
                for name, attributes in islice(_events(decision), MOST_EVENTS):
                    span.add_event(name, attributes)
            if handler.observe is not None:
                handler.observe(request, decision)

        try:
            return await replace(handler, observe=observed).answer(body, out_of_time)
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)  # its message may quote
            raise
        finally:
            span.end()

    return answer


def _about(request: AdmissionRequest, decision: Decision) -> dict[str, str | bool | int]:
    resource = f"{request.resource.resource}.{request.resource.group}".rstrip(".")
    return {
        "policyd.review.uid": _short(request.uid),
        "policyd.review.resource": _short(resource),
        "policyd.review.operation": request.operation,
        "policyd.review.dry_run": request.dry_run,
        "policyd.review.allowed": decision.allowed,
        "policyd.review.changes": len(decision.operations),
        "k8s.namespace.name": _short(request.namespace),
        "k8s.object.name": _short(request.name),
    }


def _events(decision: Decision) -> Iterator[Event]:
    """Yield what policies did, the most important first: there may be more than fit."""
    return chain(
        (
            ("denied", {"policy": _short(each.policy), "validation": _short(each.validation)})
            for each in decision.denials
        ),
        (
            ("failed", {"policy": _short(each.policy), "ignored": each.ignored})
            for each in decision.failures
        ),
        (("matched", {"policy": _short(policy)}) for policy in decision.matched),
    )


def _short(text: str) -> str:
    return text[:MOST_CHARACTERS]
