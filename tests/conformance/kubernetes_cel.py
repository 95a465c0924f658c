"""Kubernetes' own tables: expressions of its libraries, conditions at admission, and costs."""

import json
import re
from dataclasses import replace
from functools import partial

from policyd.cel import (
    Budget,
    CelCompileError,
    CelCostError,
    CelError,
    admission_environment,
    compile_expression,
)
from policyd.cel.errors import CelInternalError
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.spans import Span
from policyd.cel.lib.authorizer import Authorization, AuthorizedAction, Authorizer, ResourceCheck
from policyd.cel.values import Optional, Struct
from tests.conformance.outcome import judge

_POLICY_BUDGET = 10_000_000
# The tables refer to a few Go variables by name; these are their values.
_VARIABLES = {"int6": 6, "int4": 4, "true": True, "false": False}


def run_library(path):
    environment = admission_environment(mutation=True)
    for case in json.loads(path.read_text()):
        yield judge(case["id"], partial(_library_failure, case, environment))


def _library_failure(case, environment):
    expect = case["expect"]
    patterns = expect.get("patterns", [expect.get("pattern", "")])
    try:
        program = compile_expression(case["expression"], environment)
    except CelCompileError as error:
        return _expected(expect["result"] == "compileError", patterns, error)
    if expect["result"] == "compileError":
        return "expected an error when compiled"
    try:
        value = program.evaluate({}, Budget())
    except CelInternalError as error:
        return str(error)
    except CelError as error:
        return _expected(expect["result"] == "runtimeError", patterns, error)
    if expect["result"] != "value":
        return f"expected an error, got {value!r}"
    return "" if _matches(value, expect["value"]) else f"{expect['value']} != {value!r}"


def _expected(wanted, patterns, error):
    if not wanted:
        return f"unexpected error: {error}"
    missing = [p for p in patterns if not (re.search(p, str(error)) or p in str(error))]
    return f"{missing} not in: {error}" if missing else ""


def _matches(value, wanted):
    if isinstance(wanted, dict) and "go" in wanted:
        return True  # only its Go type is known: that it evaluates is what is tested
    if isinstance(wanted, dict) and "var" in wanted:
        return value == _VARIABLES.get(wanted["var"], wanted["var"])
    if isinstance(wanted, dict) and "optional" in wanted:
        return isinstance(value, Optional) and value.value == wanted["optional"]
    if isinstance(value, Struct) and value.type_name == "JSONPatch":
        names = {"op": "Op", "path": "Path", "from": "From", "value": "Val"}
        return {names[name]: part for name, part in value.items()} == wanted
    return value == wanted


def run_cost(path):
    # Its environment takes lists of several types, and does not optimise.
    environment = replace(admission_environment(), free_constants=False, same_type_literals=False)
    for case in json.loads(path.read_text()):
        yield judge(case["id"], partial(_cost_failure, case, environment))


def _cost_failure(case, environment):
    budget = Budget(_POLICY_BUDGET)
    try:
        program = compile_expression(case["expression"], environment)
        program.evaluate({"authorizer": _authorizer({"default": "allow"})}, budget)
    except (CelCompileError, CelError) as error:
        return f"unexpected error: {error}"
    wanted = case["expect"]["runtimeCost"]
    if budget.spent != wanted:
        return f"cost {budget.spent}, expected {wanted}"
    return _estimate_failure(case, environment)


def _estimate_failure(case, environment):
    wanted = case["expect"].get("estimated")
    if wanted is None:
        return ""
    span = estimate_cost(case["expression"], environment, sizes=_twelve_characters)
    if (span.least, span.most) == (wanted["min"], wanted["max"]):
        return ""
    return f"estimated at {span.least} to {span.most}, expected {wanted}"


def _twelve_characters(_path, kind):
    """Take strings for as long as the table does."""
    return Span(0, 12) if kind.name in ("string", "bytes") else None


def run_conditions(path):
    for case in json.loads(path.read_text()):
        yield judge(case["id"], partial(_condition_failure, case))


def _condition_failure(case):
    budget = Budget(case.get("budget", _POLICY_BUDGET))
    expect = case["expect"]
    # Of what goes over a limit, nothing but that is expected.
    over = expect.get("exceedBudget") or expect.get("exceedPerCallLimit")
    exceeded = False
    for place, expression in enumerate(case["expressions"]):
        value, error = _condition_result(case, expression, budget)
        exceeded = exceeded or isinstance(error, CelCostError)
        wanted = expect["results"][place] if "results" in expect else {"value": value}
        wrong = _condition_difference(wanted, value, error)
        if wrong and not (over and exceeded):
            return f"{expression}: {wrong}"
    if over:
        return "" if exceeded else "expected to go over the limit"
    remaining = expect.get("remaining", budget.remaining)
    if remaining != budget.remaining:
        return f"{budget.remaining} of the budget left, expected {remaining}"
    return ""


def _condition_result(case, expression, budget):
    """Return the value of a condition, or the error."""
    limit = case.get("perCallLimit") or case.get("testPerCallLimit")
    own = Budget(limit) if limit else budget
    try:
        program = compile_expression(expression, _condition_environment(case))
        return program.evaluate(_activation(case), own), None
    except (CelCompileError, CelError) as error:
        return None, error


def _condition_environment(case):
    major, minor = re.fullmatch(r"v(\d)(\d+)", case.get("k8sVersion", "v136")).groups()
    if "stored" in str(case.get("envType", "")).lower():
        return admission_environment()  # what is stored may use everything
    return admission_environment((int(major), int(minor)))


def _condition_difference(wanted, value, error):
    if error is not None:
        if wanted.get("error") and wanted["error"] in str(error):
            return ""
        return f"unexpected error: {error}"
    return "" if value == wanted.get("value") else f"expected {wanted}, got {value!r}"


def _activation(case):
    authorizer = _authorizer(case.get("authorizer", {"default": "deny"}))
    request = case.get("request", {})
    resource = request.get("resource", {})
    # Go's dynamic objects were dumped with the field that holds their content.
    params = [param.get("Object", param) for param in case.get("params") or ()] or [None]
    return {
        "object": case.get("resource"),
        "oldObject": case.get("oldResource"),
        "request": request,
        "params": params[0],
        "namespaceObject": case.get("namespaceObject"),
        "authorizer": authorizer,
        "authorizer.requestResource": ResourceCheck(
            authorizer.authorize,
            AuthorizedAction(
                group=resource.get("group", ""),
                resource=resource.get("resource", ""),
                subresource=request.get("subResource", ""),
                namespace=request.get("namespace", ""),
                name=request.get("name", ""),
            ),
        ),
    }


def _authorizer(described):
    """Build the authorizer a case describes: what it allows, and what it says to all else."""
    allowed = described.get("allow")

    def authorize(attributes):
        if allowed is not None and _is_allowed(attributes, allowed):
            return Authorization(allowed=True)
        if described["default"] == "error":
            return Authorization(error="fake authz error")
        return Authorization(allowed=described["default"] == "allow", reason="fake reason")

    return Authorizer(authorize)


def _is_allowed(attributes, allowed):
    if "Path" in allowed:
        return attributes.path == allowed["Path"] and attributes.verb == allowed["Verb"]
    asked = {
        "APIGroup": attributes.group,
        "Resource": attributes.resource,
        "Subresource": attributes.subresource,
        "Namespace": attributes.namespace,
        "Name": attributes.name,
        "Verb": attributes.verb,
    }
    return all(allowed.get(name, "") == value for name, value in asked.items())
