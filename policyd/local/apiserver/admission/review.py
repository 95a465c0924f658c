"""AdmissionReview: the request to a webhook, and the interpretation of its response."""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from policyd.api.meta import Json
from policyd.local.apiserver.admission.attributes import WriteAttributes
from policyd.local.apiserver.conversion import to_served
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object, StatusError
from policyd.local.apiserver.writing.metadata import new_uid
from policyd.patch.operations import Operation

KIND = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


class InvalidAnswerError(Exception):
    """A webhook's answer is none; the text is the API server's."""


class WebhookRefusal(msgspec.Struct, rename="camel"):
    """Why a webhook refuses; it may leave everything out."""

    code: int = 0
    message: str = ""
    reason: str = ""
    details: Json = None


class WebhookResponse(msgspec.Struct, rename="camel"):
    """A webhook's answer, as far as it gives one."""

    uid: str = ""
    allowed: bool = False
    status: WebhookRefusal | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: msgspec.Raw = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookVerdict:
    """A webhook's answer that could be read."""

    response: WebhookResponse
    operations: tuple[Operation, ...] = ()


def review_request(attributes: WriteAttributes, served: Served) -> Object:
    """Write the `request` of a review, with the object in the version the webhook asked for."""
    subresource = attributes.subresource
    request: Object = {
        "uid": new_uid(),
        "kind": _kind(attributes, served),
        "resource": _resource(served),
        "subResource": subresource,
        "requestKind": _kind(attributes, attributes.served),
        "requestResource": _resource(attributes.served),
        "requestSubResource": subresource,
        "name": attributes.name,
        "namespace": attributes.namespace,
        "operation": attributes.operation,
        "userInfo": {"username": attributes.user.name, "groups": list(attributes.user.groups)},
        "object": _shown(attributes.object, served),
        "oldObject": _shown(attributes.old_object, served),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }
    return {name: value for name, value in request.items() if value != ""}


def _kind(attributes: WriteAttributes, served: Served) -> Object:
    if attributes.kind is not None:
        group, version, kind = attributes.kind
        return {"group": group, "version": version, "kind": kind}
    return {"group": served.group, "version": served.version, "kind": served.kind}


def _resource(served: Served) -> Object:
    return {"group": served.group, "version": served.version, "resource": served.plural}


def _shown(value: Object | None, served: Served) -> Object | None:
    return None if value is None else to_served(served, value)


def encode_review(request: Object) -> bytes:
    """Write the body of a webhook call."""
    return msgspec.json.encode({**KIND, "request": request})


def read_verdict(body: bytes, uid: str, *, mutating: bool) -> WebhookVerdict:
    """Read the body of a webhook's answer.

    Raises:
        InvalidAnswerError: If it is not an answer to the review with this uid.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        if not bytes(answer.response).strip() or bytes(answer.response) == b"null":
            raise InvalidAnswerError("Webhook response was absent")
        response = msgspec.json.decode(answer.response, type=WebhookResponse)
    except msgspec.DecodeError as error:
        raise InvalidAnswerError(f"received invalid webhook response: {error}") from error
    if {"apiVersion": answer.api_version, "kind": answer.kind} != KIND:
        raise InvalidAnswerError(
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1,"
            f" Kind=AdmissionReview, got {answer.api_version}, Kind={answer.kind}"
        )
    if response.uid != uid:
        raise InvalidAnswerError(
            f'received invalid webhook response: expected response.uid="{uid}",'
            f' got "{response.uid}"'
        )
    return WebhookVerdict(response=response, operations=_operations(response, mutating=mutating))


def _operations(response: WebhookResponse, *, mutating: bool) -> tuple[Operation, ...]:
    if not response.patch:
        if response.patch_type is not None:
            raise InvalidAnswerError(
                "received invalid webhook response: webhook returned"
                " response.patchType but not response.patch"
            )
        return ()
    if not mutating:
        raise InvalidAnswerError(
            "received invalid webhook response: validating webhook may not return response.patch"
        )
    if response.patch_type is None:
        raise InvalidAnswerError(
            "received invalid webhook response: webhook returned"
            " response.patch but not response.patchType"
        )
    try:
        return msgspec.json.decode(base64.b64decode(response.patch), type=tuple[Operation, ...])
    except (binascii.Error, msgspec.DecodeError) as error:
        raise InvalidAnswerError(f"received invalid webhook response: {error}") from error


def denial(webhook: str, response: WebhookResponse) -> StatusError:
    """Say that a webhook refused, as it says and in the API server's words."""
    status = response.status or WebhookRefusal()
    prefix = f'admission webhook "{webhook}" denied the request'
    why = status.message or status.reason
    message = f"{prefix}: {why}" if why else f"{prefix} without explanation"
    return StatusError(max(status.code, 400), status.reason, message, details=status.details)
