"""Rewrite expressions to the API server's CEL, which has no `pod` and no `workload`.

The author's text stays as it is; only the names and calls that the API server does not know are
replaced, each by plain CEL that comes to the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from policyd.api.gpus import GPU_PREFIXES, GPU_RESOURCES, PARTS
from policyd.api.inject import Expression
from policyd.api.makers import DEFAULT_MAKERS
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.engine.export.places import (
    HOLDER,
    HOLDER_KEY,
    PodPlace,
    both,
    in_all_of_spark,
    places_of,
)
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.functions import METHODS
from policyd.engine.objects.workloads import WorkloadKind
from policyd.errors import PolicydError

OfPod = Callable[[str], str]
"""Returns plain CEL that counts something of the pod that is given in CEL."""

_OBJECTS = frozenset({"pod", "workload", "object"})
_OLD = "oldObject"
_TAKEN = frozenset({*_OBJECTS, HOLDER, HOLDER_KEY, "maker", _OLD, "variables"})


class NotExportableError(PolicydError):
    """Something needs policyd, and has no counterpart in the API server's own policies."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The CEL for names that the API server does not have.

    Attributes:
        workload: The object, in CEL.
        places: Where its pods are.
        pod: The pod, in CEL; empty where nothing says which is meant.
        variables: Variables to expand where they are named: they use `pod`.
        kind: The kind of the object; None if it makes no pods.
    """

    workload: str
    places: tuple[PodPlace, ...] = ()
    pod: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    kind: WorkloadKind | None = None

    def rewrite(self, source: str) -> str:
        """Return an expression in plain CEL.

        Raises:
            NotExportableError: If it has no form in it.
        """
        text = source
        for start, end, plain in sorted(self._replacements(parse(source), source), reverse=True):
            text = text[:start] + plain + text[end:]
        return text.strip()

    def _replacements(
        self, node: ast.ExpressionNode, source: str
    ) -> Iterator[tuple[int, int, str]]:
        """Yield the replacements: begin, end and text."""
        match node:
            case ast.Call(function=function, target=ast.ExpressionNode() as target) if (
                function in METHODS
            ):
                yield self._method(node, target, source)
                return
            case ast.Select(operand=ast.Identifier(name="variables") as names, field=name):
                if name in self.variables:
                    end = source.index(name, node.position) + len(name)
                    yield names.position, end, f"({self.rewrite(self.variables[name])})"
                return
            case ast.Identifier(name="pod"):
                yield node.position, node.position + len("pod"), self._pod()
            case ast.Identifier(name="workload"):
                yield node.position, node.position + len("workload"), self.workload
            case ast.Identifier(name="maker"):
                yield node.position, node.position + len("maker"), maker_of(self.workload)
            case _:
                _check_names(node)
        for part in ast.children(node):
            yield from self._replacements(part, source)

    def _method(
        self, call: ast.Call, target: ast.ExpressionNode, source: str
    ) -> tuple[int, int, str]:
        end = source.find(")", call.position) + 1
        shown = source[target.position : end]
        if not isinstance(target, ast.Identifier) or target.name not in {*_OBJECTS, _OLD}:
            raise NotExportableError(
                f"`{call.function}()` can be exported of `pod` and `workload` only"
            )
        scope = self
        if target.name == _OLD:
            scope = replace(self, workload=_OLD, places=places_of(self.kind, _OLD))
        plain = scope.ask(target.name, call.function)
        if call.arguments or plain is None:
            raise NotExportableError(f"`{shown}` has no counterpart in plain CEL")
        return target.position, end, plain

    def ask(self, of: str, method: str) -> str | None:
        """Return the CEL for a method, None if plain CEL cannot express it."""
        match (of, method):
            case ("pod", "gpus" | "claims" | "claimedDevices" | "devices"):
                return _OF_POD[method](self._pod())
            case ("pod", _):
                return None
            case (_, "gpus" | "claims" | "claimedDevices" | "devices" | "pods"):
                return self._in_all(method)
            case (_, "controller"):
                return controller_of(self.workload)
            case _:
                return None

    def _pod(self) -> str:
        if not self.pod:
            raise NotExportableError("`pod` is one of several pod templates here")
        return self.pod

    def _in_all(self, method: str) -> str:
        """Add up the pods of all templates, or a number for each pod or each template."""
        of_pod, once = _OF_POD.get(method), method == "devices"
        if self.kind is not None and self.kind.assembled is not None:
            return in_all_of_spark(self.workload, of_pod, once=once)
        if not self.places:
            return "0" if of_pod is None else of_pod(self.workload)
        places = [replace(each, count="1") for each in self.places] if once else self.places
        parts = [_sum(place, of_pod) for place in places]
        if method in {"gpus", "devices"} and self.kind is not None:
            added = (self.workload + "".join(f".?{s}" for s in path) for path in self.kind.besides)
            parts += [_gpus(f"{each}.orValue({{}})") for each in added]
        return f"({' + '.join(parts)})"


def _sum(place: PodPlace, of_pod: OfPod | None) -> str:
    amount = place.count
    if of_pod is not None:
        each = of_pod(place.pod)
        amount = each if place.count == "1" else f"{place.count} * {each}"
    if place.loop:
        return f"{place.gather('', amount)}.sum()"
    return f"({place.present} ? {amount} : 0)" if place.present else amount


def _check_names(node: ast.ExpressionNode) -> None:
    """Refuse loops whose variables have the name that replaces `pod`."""
    taken = [name for name in _bound(node) if name in _TAKEN]
    if taken:
        raise NotExportableError(f"the loop variable `{taken[0]}` needs another name")


def _bound(node: ast.ExpressionNode) -> Sequence[str]:
    """Return the variables that an expression binds for its parts."""
    match node:
        case ast.Comprehension(variables=variables):
            return variables
        case ast.Bind(name=name) | ast.OptionalMap(name=name) | ast.SortBy(name=name):
            return (name,)
        case _:
            return ()


def methods_of(policy: CompiledPolicy) -> frozenset[str]:
    """Return the names of the methods that only policyd has, of those that a policy calls.

    Methods of `pod` are prefixed: `pod.gpus`.
    """
    spec = policy.policy.spec
    sources = [c.expression for c in (*spec.match_conditions, *spec.variables)]
    for validation in spec.validations:
        sources += [validation.expression, validation.message_expression]
    sources += [annotation.value_expression for annotation in spec.audit_annotations]
    sources += [text for value in (spec.inject, spec.mutations) for text in _expressions(value)]
    sources += [text for v in spec.validations for text in _expressions(v.remedy)]
    return frozenset(name for source in sources if source for name in _methods(parse(source)))


def _expressions(value: object) -> Iterator[str]:
    """Yield the text of every expression in a part of a policy."""
    match value:
        case Expression(expression=text):
            yield text
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from _expressions(getattr(value, name))
        case tuple():
            for item in value:
                yield from _expressions(item)
        case dict():
            yield from _expressions(tuple(value.values()))
        case _:
            return


def _methods(node: ast.ExpressionNode) -> Iterator[str]:
    if isinstance(node, ast.Call) and node.target is not None and node.function in METHODS:
        on_pod = isinstance(node.target, ast.Identifier) and node.target.name == "pod"
        yield f"pod.{node.function}" if on_pod else node.function
    for part in ast.children(node):
        yield from _methods(part)


def controller_of(workload: str) -> str:
    """Return the CEL for the kind of the object's controller, empty if there is none."""
    owners = f"{workload}.metadata.?ownerReferences.orValue([])"
    chosen = f"{owners}.filter(o, o.?controller.orValue(false)).map(o, string(o.kind))"
    return f"{chosen}[?0].orValue('')"


def maker_of(workload: str) -> str:
    """Return the CEL for the kind of the object's controller, if the request is by that controller.

    The accounts are the usual ones: the API server does not know those of policyd's settings.
    """
    groups = (f"'{group}': {sorted(names)}" for group, names in sorted(DEFAULT_MAKERS.items()))
    known = f"{{{', '.join(groups)}}}"
    group = "[?(o.apiVersion.contains('/') ? o.apiVersion.split('/')[0] : '')]"
    vouched = f"request.userInfo.?username.orValue('') in {known}{group}.orValue([])"
    owners = f"{workload}.metadata.?ownerReferences.orValue([])"
    chosen = f"{owners}.filter(o, o.?controller.orValue(false) && {vouched})"
    return f"{chosen}.map(o, string(o.kind))[?0].orValue('')"


_WHOLE_AMOUNT: Final = "quantity(string(q)).asInteger()"
"""The CEL for an amount of devices, which the API server requires to be whole."""


def gpus_of(pod: str, amount: str = _WHOLE_AMOUNT) -> str:
    """Return the CEL that counts the GPUs of one pod, as the scheduler adds up containers.

    A list of one serves as a variable: a long expression is written and evaluated once.
    """
    kinds = ", ".join(
        f"{pod}.?spec.?{kind}.orValue([])" for kind in ("containers", "initContainers")
    )
    counted = f"[{kinds}].map(l, l.map(c, [{_gpus('c', amount)}, {_sidecar('c')} ? 1 : 0]))"
    running = "l[0].map(c, c[0]).sum() + l[1].map(c, c[0] * c[1]).sum()"
    sidecars = "l[1].slice(0, i).map(s, s[0] * s[1]).sum()"
    one_by_one = f"l[1].transformList(i, c, c[1] == 0, c[0] + {sidecars})"
    most = f"[{counted}].map(l, ([{running}] + {one_by_one}).max())[0]"
    whole = f"{most} + {_devices(f'{pod}.?spec.?overhead.orValue({{}})', amount)}"
    annotations = f"{pod}.?metadata.?annotations.orValue({{}})"
    part = " || ".join(f"'{name}' in {annotations}" for name in PARTS)
    return f"[{whole}, {part} ? 1 : 0].max()"


def claims_of(pod: str) -> str:
    """Return the CEL that counts the ResourceClaims of one pod."""
    return f"{pod}.?spec.?resourceClaims.orValue([]).size()"


def claimed_devices_of(pod: str) -> str:
    """Return the CEL that is 0 for a pod without claims, and an error for one with claims.

    How many devices they are for, only policyd's webhooks can look up.
    """
    return f"({claims_of(pod)} == 0 ? 0 : {{'': 0}}['{_NOT_COUNTED}'])"


_NOT_COUNTED: Final = "devices of claims, which only the webhooks of policyd count"


def devices_of(pod: str, amount: str = _WHOLE_AMOUNT) -> str:
    """Return the CEL that adds up the GPUs and claims of one pod."""
    return f"({gpus_of(pod, amount)} + {claims_of(pod)})"


_OF_POD: Mapping[str, OfPod] = {
    "gpus": gpus_of,
    "claims": claims_of,
    "claimedDevices": claimed_devices_of,
    "devices": devices_of,
}
"""The counted fields of one pod, by method."""


def _sidecar(container: str) -> str:
    return f"{container}.?restartPolicy.orValue('') == 'Always'"


def _gpus(container: str, amount: str = _WHOLE_AMOUNT) -> str:
    requests, limits = (
        f"{container}.?resources.?{side}.orValue({{}})" for side in ("requests", "limits")
    )
    unsaid = f"j == 0 || !(n in {requests})"  # a request goes before the limit
    return f"[{requests}, {limits}].transformList(j, a, {_devices('a', amount, unsaid)}).sum()"


def _devices(amounts: str, amount: str, condition: str = "") -> str:
    names = ", ".join(f"'{name}'" for name in sorted(GPU_RESOURCES))
    prefixed = "".join(f" || n.startsWith('{prefix}')" for prefix in GPU_PREFIXES)
    chosen = both(f"n in [{names}]{prefixed}", condition)
    return f"{amounts}.transformList(n, q, {chosen}, {amount}).sum()"
