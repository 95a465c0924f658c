"""Try a change without making it: objects as dry runs, and queues in a process of its own."""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.meta import Json
from policyd.engine.documents.reading import read_documents
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.resources import Resource
from policyd.questions.what_if_answers import WhatIfAnswer

MOST_TEXT: Final = 256 * 1024
"""Characters of manifests."""
MOST_VALUES: Final = 20_000
"""Values and names of fields in them."""
MOST_DOCUMENTS: Final = 20
MOST_WARNINGS: Final = 50
"""Of one object."""
TRYING_SECONDS: Final = 25.0
"""For how long queues are simulated, until that is broken off."""
MOST_MEMORY: Final = 2 * 1024**3
"""Bytes of memory that the simulation may take."""
WRITER: Final = "policyd-dashboard"
"""The field manager of dry runs."""


class WhatIfError(PolicydError):
    """Something cannot be tried."""


class DryRunObject(NamedTuple):
    """An object that was given to the API server as a dry run.

    Attributes:
        sent: The object.
        stored: As it would be stored; None if it was refused.
        refusal: Why it was refused; "" if it was not.
        warnings: What the API server and webhooks warn of.
    """

    sent: dict[str, Json]
    stored: dict[str, Json] | None
    refusal: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """A change of the queues.

    Attributes:
        submitted: Jobs or Workloads that come, as they would be stored.
        applied: Objects that are new, or fields of those that are there.
        deleted: `kind/name` of objects that go.
        lost_nodes: Names of nodes that go.
        namespace: Of names without one.
        until: How far to look, such as `24h`; "" for as far as anything happens.
        assume: How long jobs run that declare nothing; "" if that is unknown.
    """

    submitted: tuple[Json, ...] = ()
    applied: tuple[Json, ...] = ()
    deleted: tuple[str, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    namespace: str = ""
    until: str = ""
    assume: str = ""


class WhatIfChange(NamedTuple):
    """What a change would change, and what could not be considered."""

    answer: WhatIfAnswer
    warnings: tuple[str, ...]


async def manifests_in(text: str) -> list[dict[str, Json]]:
    """Return the objects of manifests, YAML or JSON.

    Raises:
        TryError: If there are none, too many, or one cannot be read.
    """
    if len(text) > MOST_TEXT:
        raise WhatIfError(f"the manifests have more than {MOST_TEXT // 1024} KiB")
    documents, findings = await asyncio.to_thread(
        read_documents, text, "manifest", most=MOST_VALUES
    )
    for finding in findings:
        raise WhatIfError(str(finding), hint="paste YAML or JSON, as for `kubectl apply`")
    found: list[dict[str, Json]] = []
    for document in documents:
        value = document.value
        named = isinstance(value, dict) and value.get("apiVersion") and value.get("kind")
        if not isinstance(value, dict) or not named:
            raise WhatIfError(
                f"document {len(found) + 1} is not an object: it has no apiVersion and kind"
            )
        found.append(value)
    if len(found) > MOST_DOCUMENTS:
        raise WhatIfError(f"there are more than {MOST_DOCUMENTS} objects")
    return found


async def tried(client: Client, sent: dict[str, Json], namespace: str) -> DryRunObject:
    """Give an object to the API server as a dry run: nothing is stored.

    Args:
        client: With the rights of the user.
        sent: The object.
        namespace: Where it goes if it names none.

    Raises:
        TryError: If there is no such kind.
        ApiError: If the API server does not answer.
    """
    resource = await _resource(client, sent)
    given: Any = sent.get("metadata")
    metadata = {**given} if isinstance(given, dict) else {}
    within = str(metadata.get("namespace") or namespace) if resource.namespaced else ""
    if resource.namespaced and not within:
        raise WhatIfError(f"{resource.kind} {metadata.get('name', '')} names no namespace")
    for field in ("managedFields", "resourceVersion", "uid"):
        metadata.pop(field, None)
    body = {**sent, "metadata": metadata}
    warnings: list[str] = []
    try:
        stored = await client.create(
            resource,
            body,
            into=dict,
            namespace=within,
            dry_run=True,
            field_manager=WRITER,
            warned=warnings.append,
        )
    except ApiError as error:
        if not 400 <= error.code < 500 or error.code in {401, 429}:
            raise
        return DryRunObject(sent, None, str(error), tuple(warnings[:MOST_WARNINGS]))
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **stored}
    return DryRunObject(sent, whole, "", tuple(warnings[:MOST_WARNINGS]))


async def _resource(client: Client, sent: Mapping[str, Json]) -> Resource:
    version, kind = str(sent["apiVersion"]), str(sent["kind"])
    try:
        served = await client.served(version)
    except NotFoundError:
        served = ()
    for each in served:
        if each.kind == kind:
            return each
    raise WhatIfError(f"the API server has no kind {kind} of {version}")


async def changed_queues(
    objects: Sequence[Json], change: QueueChange, *, within: float = TRYING_SECONDS
) -> WhatIfChange:
    """Return what a change would change for the queues.

    They are simulated by `policyd what-if`, in a process that ends in time, and takes no more
    memory than it may.

    Args:
        objects: The objects that queues decide by.
        change: The change.
        within: For how many seconds they may be simulated.

    Raises:
        TryError: If the change is not possible, or takes too long.
    """
    with ExitStack() as files:
        words, kept = [], []
        for option, given in (("--submit", change.submitted), ("--apply", change.applied)):
            if given:
                file = files.enter_context(TemporaryFile())
                file.write(_listed(given))
                file.seek(0)
                kept.append(file.fileno())
                words += [option, f"/dev/fd/{file.fileno()}"]
        words += _options(change)
        code, out, err = await _run(words, kept, _listed(objects), within)
    errors, warnings, hints = (_messages(err, word) for word in ("error", "warning", "hint"))
    if code != 0:
        sentence = next(iter(errors), "the queues could not be simulated")
        raise WhatIfError(sentence, hint=next(iter(hints), None))
    try:
        return WhatIfChange(msgspec.json.decode(out, type=WhatIfAnswer), tuple(warnings))
    except msgspec.MsgspecError as error:
        raise WhatIfError("the queues could not be simulated") from error


def _options(change: QueueChange) -> Iterable[str]:
    for option, value in (
        ("--namespace", change.namespace),
        ("--until", change.until),
        ("--assume", change.assume),
        *(("--delete", each) for each in change.deleted),
        *(("--lose-node", each) for each in change.lost_nodes),
    ):
        if value:
            yield f"{option}={value}"


def _listed(objects: Sequence[Json]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _messages(text: str, word: str) -> list[str]:
    lead = f"{word}: "
    return [line[len(lead) :] for line in text.splitlines() if line.startswith(lead)]


async def _run(
    words: Iterable[str], kept: Sequence[int], given: bytes, within: float
) -> tuple[int, bytes, str]:
    """Run the command, and return its exit code, output and messages.

    Raises:
        TryError: If it takes too long.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "policyd", "what-if", "--dump", "-", "--output", "json", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=kept,
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        start_new_session=True,
    )
    _limit(process.pid)
    try:
        async with asyncio.timeout(within):
            out, err = await process.communicate(given)
    except TimeoutError:
        raise WhatIfError(
            f"this was not simulated within {within:.0f} seconds",
            hint="look less far ahead, or use `policyd what-if`, which has no limit",
        ) from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return process.returncode or 0, out, err.decode(errors="replace")


def _limit(process: int) -> None:
    """Limit the memory and the processor time of a process, where the system can do that."""
    import resource  # noqa: PLC0415 - not every system has it

    with suppress(AttributeError, OSError, ValueError):
        seconds = int(TRYING_SECONDS) + 5
        resource.prlimit(process, resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.prlimit(process, resource.RLIMIT_CPU, (seconds, seconds))
