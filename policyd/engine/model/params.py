"""Find the params of a policy, as the API server finds them."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.api.policy import ParamKind, ParamRef
from policyd.api.selectors import LabelSelector
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError


class ParamError(PolicydError):
    """The params of a binding cannot be had."""


class ParamSource(Protocol):
    """A store of params: objects from files, or a watched cache."""

    def namespaced(self, kind: ParamKind) -> bool | None:
        """Tell whether objects of a kind live in namespaces; None if there are none to tell by.

        Raises:
            ParamError: If the kind is not known.
        """
        ...

    def get(self, kind: ParamKind, namespace: str, name: str) -> Json | None:
        """Return one object; `namespace` is empty for a kind without namespaces."""
        ...

    def list(self, kind: ParamKind, namespace: str, selector: LabelSelector) -> Sequence[Json]:
        """Return the objects that a selector picks, ordered by name."""
        ...


class StoredParams:
    """Params out of a collection of objects."""

    def __init__(self, objects: Iterable[Json] = (), *, default_namespace: str = "default") -> None:
        """Take objects of any kinds.

        Args:
            objects: Decoded objects.
            default_namespace: Where objects of a namespaced kind are that name no namespace.
        """
        self._default = default_namespace
        self._objects: dict[tuple[str, str], list[Json]] = {}
        for obj in objects:
            if isinstance(obj, dict):
                key = (str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
                self._objects.setdefault(key, []).append(obj)
        for stored in self._objects.values():
            stored.sort(key=_name)

    def namespaced(self, kind: ParamKind) -> bool | None:
        """Tell whether a kind lives in namespaces: custom ones do if an object of theirs does."""
        group, _, version = kind.api_version.rpartition("/")
        built_in = resource_for_kind(group, version, kind.kind)
        if built_in is not None:
            return built_in.namespaced
        found = self._of(kind)
        return any(value_at(o, ("metadata", "namespace")) for o in found) if found else None

    def get(self, kind: ParamKind, namespace: str, name: str) -> Json | None:
        """Return the object of a name, if there is one."""
        found = self.list(kind, namespace, LabelSelector())
        return next((obj for obj in found if _name(obj) == name), None)

    def list(self, kind: ParamKind, namespace: str, selector: LabelSelector) -> Sequence[Json]:
        """Return the objects that a selector picks."""
        return [
            obj
            for obj in self._of(kind)
            if (not namespace or self._namespace(obj) == namespace)
            and selector.matches(labels_of(obj))
        ]

    def _of(self, kind: ParamKind) -> Sequence[Json]:
        return self._objects.get((kind.api_version, kind.kind), ())

    def _namespace(self, obj: Json) -> str:
        return value_at(obj, ("metadata", "namespace")) or self._default


NO_PARAMS: Final = StoredParams()
"""No params."""


def find_params(
    kind: ParamKind | None, ref: ParamRef | None, source: ParamSource, *, namespace: str
) -> Sequence[Json]:
    """Return the params a policy is evaluated with, once for each; `None` stands for none.

    Args:
        kind: The kind of the policy's params; None if it has none.
        ref: Which objects the binding names; None if it names none.
        source: The source of params.
        namespace: The namespace of the request, its own for a Namespace, empty for other requests
            that belong to the cluster.

    Raises:
        ParamError: If they cannot be looked up, or are not there and must be.
    """
    if kind is None or ref is None:
        return (None,)
    found = _look_up(kind, ref, source, _namespace_of(kind, ref, source, namespace))
    if not found and ref.parameter_not_found_action == "Deny":
        raise ParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


def _namespace_of(kind: ParamKind, ref: ParamRef, source: ParamSource, namespace: str) -> str:
    namespaced = source.namespaced(kind)
    if not namespaced:
        if ref.namespace and namespaced is not None:
            raise ParamError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    if not ref.namespace and not namespace:
        raise ParamError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return ref.namespace or namespace


def _look_up(kind: ParamKind, ref: ParamRef, source: ParamSource, namespace: str) -> Sequence[Json]:
    if ref.name and ref.selector is not None:
        raise ParamError("paramRef.name and paramRef.selector are mutually exclusive")
    if ref.name:
        found = source.get(kind, namespace, ref.name)
        return () if found is None else (found,)
    if ref.selector is None:
        raise ParamError("one of name or selector must be provided")
    return source.list(kind, namespace, ref.selector)


def _name(obj: Json) -> str:
    return str(value_at(obj, ("metadata", "name")) or "")
