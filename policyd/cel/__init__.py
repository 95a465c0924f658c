"""Parse, check, compile and evaluate CEL for admission: syntax, libraries, cost. Pure.

An expression is parsed to a tree, checked against an environment, and written as one Python
function that works on decoded JSON as it is:

    program = compile_expression("object.spec.replicas <= 5", admission_environment())
    program.evaluate({"object": {"spec": {"replicas": 3}}}, Budget())

Imports `api` for the types of kinds. Start with `environments`, then `compile`.
"""

from policyd.cel.compile.program import LazyVariables, Program, compile_expression
from policyd.cel.cost import Budget
from policyd.cel.environment import Environment
from policyd.cel.environments import admission_environment, base_environment
from policyd.cel.errors import (
    CelCompileError,
    CelCostError,
    CelError,
    CelInternalError,
    CelTimeError,
    Issue,
)

__all__ = [
    "Budget",
    "CelCompileError",
    "CelCostError",
    "CelError",
    "CelInternalError",
    "CelTimeError",
    "Environment",
    "Issue",
    "LazyVariables",
    "Program",
    "admission_environment",
    "base_environment",
    "compile_expression",
]
