"""Requests as the tables write them, and answers with what differs by nature blanked."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.e2e.likeness.objects import PATHS

NAMESPACE = "{namespace}"
"""Where a path or body names the story's own namespace."""

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request.

    `body` is JSON, text as it is sent, or what makes JSON out of the last answer's body. With
    `until`, the request is repeated until the answer's body satisfies it.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    content: str = "application/json"
    accept: str = "application/json"
    until: Callable[[Any], bool] | None = None
    times: int = 1

    def __str__(self) -> str:
        query = f"?{urlencode(self.query)}" if self.query else ""
        return f"{self.method} {self.path}{query}"


def path_of(kind, name="", part="", *, everywhere=False):
    """Return the path of a kind's collection, of an object, or of a subresource."""
    root, plural, namespaced = PATHS[kind]
    inside = f"/namespaces/{NAMESPACE}" if namespaced and not everywhere else ""
    return "/".join(filter(None, (f"{root}{inside}", plural, name, part)))


def create(value, *, part="", name="", **query):
    """Create an object, or a subresource such as a binding under the name of its pod."""
    kind = (part and "Pod") or value["kind"]
    return Ask(method="POST", path=path_of(kind, name, part), query=query, body=value)


def replace(kind, name, body, *, part="", **query):
    return Ask(method="PUT", path=path_of(kind, name, part), query=query, body=body)


def read(kind, name, part="", *, accept="application/json", until=None, **query):
    path = path_of(kind, name, part)
    return Ask(method="GET", path=path, query=query, accept=accept, until=until)


def find(kind, *, accept="application/json", until=None, everywhere=False, **query):
    path = path_of(kind, everywhere=everywhere)
    return Ask(method="GET", path=path, query=query, accept=accept, until=until)


def patch(kind, name, body, content=MERGE, *, part="", **query):
    path = path_of(kind, name, part)
    return Ask(method="PATCH", path=path, query=query, body=body, content=content)


def apply(value, manager="likeness", **query):
    path = path_of(value["kind"], value["metadata"]["name"])
    query = {"fieldManager": manager, **query}
    return Ask(method="PATCH", path=path, query=query, body=value, content=APPLY)


def remove(kind, name="", body=None, **query):
    return Ask(method="DELETE", path=path_of(kind, name), query=query, body=body)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered to one request, blanked."""

    asked: str
    code: int
    warnings: list[str]
    body: Any
    sent: str = ""

    def shown(self):
        return {
            "asked": self.asked,
            "code": self.code,
            "warnings": self.warnings,
            "body": self.body,
        }


BLANKED = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+\.\d+Z"), "MICROTIME"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z"), "TIME"),
    (re.compile(r"^(\d+[ydhms])+$"), "AGE"),
    (re.compile(r"\b([Gg]en-)[a-z0-9]{5}\b"), r"\1SUFFIX"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"likeness-[a-z0-9]+"), "NAMESPACE"),
]

VERSIONS = frozenset({"resourceVersion", "continue"})
"""Fields with a value of the server's own."""


def blanked(value, key=""):
    """Blank what two servers cannot have in common."""
    match value:
        case dict():
            return {in_words(name): blanked(part, name) for name, part in value.items()}
        case list():
            return ordered([blanked(part) for part in value], key)
        case str() if key in VERSIONS and value not in {"", "0"}:
            return "SET"
        case str():
            return in_words(value)
        case _:
            return value


def in_words(text):
    for pattern, blank in BLANKED:
        text = pattern.sub(blank, text)
    return text


def ordered(items, key):
    """Sort fields' managers, which stand in no order, and leave out causes given again.

    The real server checks some things twice.
    """
    if key == "managedFields":
        return sorted(items, key=json.dumps)
    if key == "causes":
        return [item for index, item in enumerate(items) if item not in items[:index]]
    return items


def decoded(raw):
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")
