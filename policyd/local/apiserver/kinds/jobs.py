"""Jobs: their defaults, the rules of their specs and statuses, and of changes."""

from collections.abc import Iterator

from policyd.local.apiserver.checks import metadata
from policyd.local.apiserver.kinds.container_checks import NOT_NEGATIVE
from policyd.local.apiserver.kinds.pod_checks import check_template
from policyd.local.apiserver.kinds.pod_defaults import default_template
from policyd.local.apiserver.status import Cause, Object, not_supported, required, wrong

BACKOFF_LIMIT = 6
WITHOUT_LIMIT = 2**31 - 1

JOB_NAME = ("batch.kubernetes.io/job-name", "job-name")
CONTROLLER_UID = ("batch.kubernetes.io/controller-uid", "controller-uid")

REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")

COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)

IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def default_job(job: Object) -> None:
    """Fill in a job's spec."""
    default_job_spec(job.setdefault("spec", {}))
    labels = job["spec"]["template"].get("metadata", {}).get("labels")
    if labels and "labels" not in job["metadata"]:
        job["metadata"]["labels"] = dict(labels)
    job["spec"].setdefault("manualSelector", False)


def default_job_spec(spec: Object) -> None:
    """Set the defaults that jobs and templates of jobs have in common."""
    default_template(spec.setdefault("template", {}))


def complete_job_spec(job: Object) -> None:
    """Fill in the numbers of a job, which a cron job's template does without."""
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    limit = WITHOUT_LIMIT if "backoffLimitPerIndex" in spec else BACKOFF_LIMIT
    spec.setdefault("backoffLimit", limit)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for condition in rule.get("onPodConditions", ()):
            condition.setdefault("status", "True")


def default_whole_job(job: Object) -> None:
    """Fill in all of a job."""
    default_job(job)
    complete_job_spec(job)


def select_own_pods(job: Object) -> None:
    """Give a new job the selector and the labels by which its pods are known."""
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    template = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    uid = job["metadata"]["uid"]
    for name in JOB_NAME:
        template[name] = job["metadata"]["name"]
    for name in CONTROLLER_UID:
        template[name] = uid
    selector = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selector.setdefault(CONTROLLER_UID[0], uid)
    job["metadata"].setdefault("labels", dict(template))


def _check_rest(spec: Object) -> Iterator[Cause]:
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if "maxFailedIndexes" in spec and spec.get("completionMode") != "Indexed":
        limit = spec["maxFailedIndexes"]
        yield wrong("spec.maxFailedIndexes", limit, "requires indexed completion mode")
    policy = spec.get("podReplacementPolicy")
    if policy not in REPLACEMENT_POLICIES:
        yield not_supported("spec.podReplacementPolicy", policy, REPLACEMENT_POLICIES)
    manager = spec.get("managedBy")
    if manager is not None and not all(_domain_and_path(manager)):
        what = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield wrong("spec.managedBy", manager, what)


def _domain_and_path(text: str) -> tuple[bool, bool]:
    domain, _, path = text.partition("/")
    return not metadata.subdomain(domain), bool(path) and not metadata.path_segment(path)


def _check_selector(job: Object) -> Iterator[Cause]:
    spec, uid = job["spec"], job["metadata"].get("uid", "")
    selector, own = spec.get("selector"), {"matchLabels": {CONTROLLER_UID[0]: uid}}
    labels = spec["template"].get("metadata", {}).get("labels")
    if not selector:
        yield required("spec.selector")
    elif not spec.get("manualSelector") and selector != own:
        yield wrong("spec.selector", selector, "`selector` not auto-generated")
    wanted = (selector or {}).get("matchLabels", {})
    if not selector or not wanted.items() <= (labels or {}).items():
        path = "spec.template.metadata.labels"
        yield wrong(path, labels, "`selector` does not match template `labels`")


def check_job(job: Object) -> Iterator[Cause]:
    """Check a job that is created or changed."""
    spec = job["spec"]
    for name in COUNTS:
        if spec.get(name, 0) < 0:
            yield wrong(f"spec.{name}", spec[name], NOT_NEGATIVE)
    yield from _check_selector(job)
    yield from _check_completion_mode(spec)
    yield from _check_rest(spec)
    yield from check_template(spec["template"], "spec.template")
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy == "Always":
        what = 'valid values: "OnFailure", "Never"'
        yield required("spec.template.spec.restartPolicy", what)


def _check_completion_mode(spec: Object) -> Iterator[Cause]:
    mode = spec.get("completionMode")
    if mode not in {"Indexed", "NonIndexed"}:
        yield not_supported("spec.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and "completions" not in spec:
        yield required("spec.completions", "when completion mode is Indexed")
    if mode == "NonIndexed" and "backoffLimitPerIndex" in spec:
        limit = spec["backoffLimitPerIndex"]
        yield wrong("spec.backoffLimitPerIndex", limit, "requires indexed completion mode")


def check_job_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a job's spec or status."""
    yield from check_job_status(new, old)
    spec, before = new["spec"], old["spec"]
    for name in IMMUTABLE:
        if spec.get(name) != before.get(name):
            yield wrong(f"spec.{name}", spec.get(name), "field is immutable")
    if spec.get("completions") != before.get("completions") and not _is_elastic(spec, before):
        elastic = spec.get("completionMode") == "Indexed"
        why = "can only be modified in tandem with spec.parallelism"
        why = why if elastic else "field is immutable"
        if not (elastic and spec.get("completions") is None):
            yield wrong("spec.completions", spec.get("completions"), why)
    mutable = _template_may_change(old)
    if _fixed_part(spec["template"], mutable=mutable) != _fixed_part(
        before["template"], mutable=mutable
    ):
        if mutable:
            yield wrong("spec.template.spec", spec["template"]["spec"], "field is immutable")
        else:
            yield wrong("spec.template", spec["template"], "field is immutable")


def _is_elastic(spec: Object, before: Object) -> bool:
    """Tell whether an indexed job may grow and shrink: while it runs everything at once."""
    return (
        before.get("completionMode") == "Indexed"
        and spec.get("completions") is not None
        and spec.get("completions") == spec.get("parallelism")
    )


def _template_may_change(old: Object) -> bool:
    """Tell whether the places and requests of a job's pods may change: while it is suspended."""
    status = old.get("status", {})
    suspended = any(
        c["type"] == "Suspended" and c["status"] == "True" for c in status.get("conditions", ())
    )
    started = "startTime" in status and not suspended
    return bool(old["spec"].get("suspend")) and not started and not status.get("active")


def _fixed_part(template: Object, *, mutable: bool) -> Object:
    if not mutable:
        return template
    about, spec = dict(template.get("metadata", {})), dict(template["spec"])
    for name in ("labels", "annotations"):
        about.pop(name, None)
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        spec.pop(name, None)
    affinity = {k: v for k, v in spec.pop("affinity", {}).items() if k != "nodeAffinity"}
    containers = [{**c, "resources": {}} for c in spec.get("containers", ())]
    return {**template, "metadata": about, "spec": spec | {"containers": containers} | affinity}


STATUS_COUNTS = ("active", "failed", "ready", "succeeded", "terminating")

NEEDED = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
"""The conditions a job ends with, and those that come before."""


def check_job_status(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a job's status."""
    status, before = new.get("status", {}), old.get("status", {})
    if status == before:
        return
    for name in STATUS_COUNTS:
        if status.get(name, 0) < 0:
            yield wrong(f"status.{name}", status[name], NOT_NEGATIVE)
    yield from _check_times(status, before, suspended=bool(new["spec"].get("suspend")))
    yield from _check_end(status, before)


def _check_times(status: Object, before: Object, *, suspended: bool) -> Iterator[Cause]:
    complete = _is(status, "Complete")
    if "completionTime" in status and not complete:
        why = "cannot set completionTime when there is no Complete=True condition"
        yield wrong("status.completionTime", status["completionTime"], why)
    elif complete and not _is(before, "Complete") and "completionTime" not in status:
        why = "completionTime is required for Complete jobs"
        yield required("status.completionTime", why)
    started = before.get("startTime")
    if started and not suspended and status.get("startTime") != started:
        if "startTime" in status:
            why = "field is immutable for unsuspended job once set"
            yield wrong("status.startTime", status["startTime"], why)
        else:
            yield required("status.startTime", "startTime cannot be removed for unsuspended job")


def _check_end(status: Object, before: Object) -> Iterator[Cause]:
    for end, needed in NEEDED.items():
        if not _is(status, end) or _is(before, end):
            continue
        if not _is(status, needed):
            needed_type = needed if end == "Failed" else "SuccessCriteriaMet"
            value = "true" if end == "Complete" else "True"
            why = f"cannot set {end}=True condition without the {needed_type}={value} condition"
            yield Cause("FieldValueInvalid", f"Invalid value: {why}", "status.conditions")
        if "startTime" not in status:
            yield required("status.startTime", "startTime is required for finished job")


def _is(status: Object, condition: str) -> bool:
    conditions = status.get("conditions", ())
    return any(c.get("type") == condition and c.get("status") == "True" for c in conditions)
