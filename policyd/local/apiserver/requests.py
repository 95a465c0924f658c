"""Requests: the path, the options in the query, the user, and the body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal
from urllib.parse import parse_qsl

import msgspec
import yaml

from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object, bad_request, unsupported_media_type
from policyd.local.apiserver.wire.protobuf import MEDIA_TYPE as PROTOBUF
from policyd.local.apiserver.wire.protobuf import ProtobufError, decode_protobuf

JSON = "application/json"
YAML = "application/yaml"
BODY_LIMIT = 3 * 1024 * 1024
"""Bytes; the real server's limit."""

Validation = Literal["Ignore", "Warn", "Strict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiUser:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTarget:
    """The target of a path; an empty name is the collection."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The query's options, by name; one that is repeated counts as first given."""

    values: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return an option, empty if it is not there."""
        return self.values.get(name, "")

    def flag(self, name: str) -> bool:
        """Tell whether an option is set and not false."""
        return self.values.get(name, "false").lower() not in {"false", "0"}

    def integer(self, name: str) -> int | None:
        """Return a number, None if it is not given.

        Raises:
            StatusError: If it is given and is not a number.
        """
        given = self.values.get(name)
        if not given:
            return None
        try:
            return int(given)
        except ValueError:
            why = f'strconv.ParseInt: parsing "{given}": invalid syntax'
            raise bad_request(why) from None

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return self.text("dryRun") == "All"

    @property
    def field_validation(self) -> Validation:
        """How unknown fields are treated."""
        match self.text("fieldValidation"):
            case "Ignore":
                return "Ignore"
            case "Strict":
                return "Strict"
            case _:
                return "Warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request for a kind that is served; `warnings` are sent with the response."""

    method: str
    target: PathTarget
    served: Served
    options: QueryOptions
    user: ApiUser
    headers: Mapping[str, str]
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def media_type(self) -> str:
        """The body's format."""
        return self.headers.get("content-type", JSON).partition(";")[0].strip() or JSON

    @property
    def field_manager(self) -> str:
        """The owner of the fields that this request sets: as given, or else the program's name."""
        agent = self.headers.get("user-agent", "unknown").partition("/")[0]
        return self.options.text("fieldManager") or agent or "unknown"

    def warn(self, text: str) -> None:
        """Tell the client something besides the answer, once."""
        if text and text not in self.warnings:
            self.warnings.append(text)


@lru_cache(maxsize=64)
def parse_options(query: bytes) -> QueryOptions:
    """Read a query string. Most requests have one of a few."""
    values: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        values.setdefault(name, value)
    return QueryOptions(values)


def parse_target(path: str) -> PathTarget | None:
    """Read a path below /api or /apis; None if it points at no resource."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest] if rest:
            return _target("", version, rest)
        case ["apis", group, version, *rest] if rest:
            return _target(group, version, rest)
        case _:
            return None


def _target(group: str, version: str, rest: list[str]) -> PathTarget | None:
    namespace = ""
    # `namespaces/x/status` is about the namespace, `namespaces/x/pods` about objects in it.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or "" in rest:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return PathTarget(
        group=group,
        version=version,
        plural=plural,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def decode(body: bytes, media_type: str) -> Object:
    """Read a body that holds one object.

    Raises:
        StatusError: If it is in another format, or not an object.
    """
    value = decode_any(body, media_type)
    if not isinstance(value, dict):
        raise bad_request("the object provided is unrecognized (must be of type Object)")
    return value


def decode_any(body: bytes, media_type: str) -> object:
    """Read a body that is any JSON value.

    Raises:
        StatusError: If it is not JSON or YAML, or nested too deep.
    """
    try:
        if media_type == PROTOBUF:
            return decode_protobuf(body)
        if media_type.endswith("yaml") and body[:1] != b"{":
            return yaml.load(body, yaml.CSafeLoader)  # a subclass of SafeLoader
        if media_type.endswith(("json", "yaml")) or media_type == "*/*":
            return msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError, ProtobufError) as error:
        raise bad_request(f"couldn't read the object: {error}") from error
    except RecursionError:
        raise bad_request("couldn't read the object: it is nested too deep") from None
    raise unsupported_media_type([JSON, YAML, PROTOBUF])
