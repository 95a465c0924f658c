"""Hold the result of a check: the type of each node, and the reference of each name."""

from dataclasses import dataclass, field
from typing import NamedTuple

from policyd.cel.errors import Issue
from policyd.cel.functions import Overload
from policyd.cel.syntax import ast
from policyd.cel.types import DYN, Type


class VariableReference(NamedTuple):
    """A name that is a variable of the environment; `fields` of it are selected after that."""

    name: str
    fields: tuple[str, ...] = ()


class TypeReference(NamedTuple):
    """A name that is a type."""

    name: str
    fields: tuple[str, ...] = ()


class FunctionReference(NamedTuple):
    """A call of the overloads that fit; a namespace before the name is not a receiver."""

    overloads: tuple[Overload, ...]
    has_receiver: bool


Reference = VariableReference | TypeReference | FunctionReference


@dataclass(slots=True)
class CheckedExpression:
    """A tree with the type of each node, and the references of its names.

    A name without a reference is a local variable, or unknown; `unknown` says which.
    """

    tree: ast.ExpressionNode
    types: dict[ast.ExpressionNode, Type] = field(default_factory=dict)
    references: dict[ast.ExpressionNode, Reference] = field(default_factory=dict)
    unknown: dict[ast.ExpressionNode, str] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    result: Type = DYN
