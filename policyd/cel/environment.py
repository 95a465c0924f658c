"""Define an environment: the variables, functions, macros and structs of an expression."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from policyd.cel.functions import Functions, Overload, Version, collect
from policyd.cel.syntax.macros import ALL_MACROS
from policyd.cel.types import DYN, Type

Fields = Mapping[str, Type]
"""The fields of a struct type."""

CEL_GO_0_26: Final[Version] = (0, 26)
"""The dialect of Kubernetes up to 1.36."""
CEL_GO_0_29: Final[Version] = (0, 29)
"""The dialect of Kubernetes from 1.37 on, and of cel-spec."""
_STRICT_OPTIONALS_SINCE: Final[Version] = (0, 28)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything the checker and the compiler need to know about the place of an expression.

    Attributes:
        variables: Types of the variables by name; a name may have dots.
        functions: All functions by name.
        macros: Names of the macros that are recognised.
        structs: Fields of the struct types by the type's name.
        open_structs: Struct types with any field: every dotted name that begins with one of these
            is the type of the field it names, as `Object.spec`.
        container: The namespace names are looked up in first.
        version: The version of Kubernetes that it represents.
        cel_go: The version of cel-go whose dialect is used.
        unavailable: For each function or macro this version lacks, the version that has it.
        same_type_literals: Whether lists and maps must have elements of one type.
        validates_literals: Whether literal durations, timestamps and patterns must be valid.
        free_constants: Whether literals made of constants cost nothing, as at admission.
        strict_selection: Whether an optional selection from a value without fields is an error, as
            in cel-spec; in the API server, nothing is selected.
    """

    variables: Mapping[str, Type] = field(default_factory=dict)
    functions: Functions = field(default_factory=dict, repr=False)
    macros: frozenset[str] = ALL_MACROS
    structs: Mapping[str, Fields] = field(default_factory=dict)
    open_structs: frozenset[str] = frozenset()
    container: str = ""
    version: Version = (1, 36)
    cel_go: Version = CEL_GO_0_29
    unavailable: Mapping[str, Version] = field(default_factory=dict)
    same_type_literals: bool = False
    validates_literals: bool = False
    free_constants: bool = True
    strict_selection: bool = False

    def extend(
        self,
        *,
        variables: Mapping[str, Type] | None = None,
        functions: Iterable[Overload] = (),
        structs: Mapping[str, Fields] | None = None,
    ) -> "Environment":
        """Return this environment with more variables, functions and struct types.

        The functions may look at the world: they are called only when an expression is evaluated.
        """
        added = collect([[replace(overload, constant=False) for overload in functions]])
        merged = dict(self.functions)
        for name, overloads in added.items():
            merged[name] = (*merged.get(name, ()), *overloads)
        return replace(
            self,
            variables={**self.variables, **(variables or {})},
            functions=merged,
            structs={**self.structs, **(structs or {})},
        )

    def without(self, *names: str) -> "Environment":
        """Return this environment without the variables of these names."""
        kept = {name: kind for name, kind in self.variables.items() if name not in names}
        return replace(self, variables=kept)

    def with_mutation(
        self, patch: Mapping[str, Fields], functions: Iterable[Overload]
    ) -> "Environment":
        """Return this environment with the types and functions mutations are written in."""
        merged = {**self.functions, **collect([functions])}
        structs = {**self.structs, **patch}
        return replace(self, structs=structs, functions=merged, open_structs=frozenset({"Object"}))

    @property
    def strict_optionals(self) -> bool:
        """Whether `or` and `orValue` are errors on values that are not optional."""
        return self.cel_go >= _STRICT_OPTIONALS_SINCE

    def struct_fields(self, name: str) -> Fields | None:
        """Return the fields of a closed struct type; None if the type does not exist."""
        return self.structs.get(name)

    def is_open_struct(self, name: str) -> bool:
        """Tell whether `name` is a struct type that takes any field."""
        return name.partition(".")[0] in self.open_structs

    def field_type(self, struct: str, name: str) -> Type | None:
        """Return the type of a field; None if the struct has no such field."""
        if self.is_open_struct(struct):
            return DYN
        return self.structs.get(struct, {}).get(name)

    def candidates(self, name: str) -> tuple[str, ...]:
        """Return the names that `name` may refer to, by the container, the most specific first."""
        prefixes = []
        container = self.container
        while container:
            prefixes.append(f"{container}.{name}")
            container = container.rpartition(".")[0]
        return (*prefixes, name)
