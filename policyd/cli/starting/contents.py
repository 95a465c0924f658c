"""The files of a new repository: policies with their cases, CI, a hook, manifests for GitOps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import yaml

from policyd import __version__
from policyd.api.kueue.names import GROUP
from policyd.api.meta import Json
from policyd.cli.formats.files import content
from policyd.jobs.kinds.registry import KINDS

Ci = Literal["github", "gitlab"]
GitOps = Literal["argocd", "flux"]
Enforcement = Literal["Deny", "Warn", "Audit"]

SHOWN_URL: Final = "https://git.example/policies.git"
"""The address of the repository until its owner gives one."""
_PYTHON: Final = "3.12"
_NAMESPACE: Final = "policyd-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryOptions:
    """What a repository is to have.

    Attributes:
        policies: The folders of the policies, by name.
        purposes: What the policies are for, by name.
        enforcement: How strictly they apply.
        ci: The systems that test them.
        gitops: The tools that bring them to clusters.
        hook: Whether git tests a commit.
        url: The address of the repository.
        serves_v1beta1: Whether the webhooks write the version v1beta1 into the definitions of
            Kueue's kinds, which a tool must then leave alone.
    """

    policies: Mapping[str, Path]
    purposes: Mapping[str, str]
    enforcement: Enforcement
    ci: tuple[Ci, ...]
    gitops: tuple[GitOps, ...]
    hook: bool
    url: str
    serves_v1beta1: bool = False


def files_of(wanted: RepositoryOptions) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file."""
    for name, folder in wanted.policies.items():
        for file in sorted(each for each in folder.iterdir() if each.is_file()):
            yield f"policies/{name}/{file.name}", content(file)
    yield "policies/kustomization.yaml", _kustomization(wanted)
    yield "requirements.txt", _REQUIREMENTS.encode()
    for asked, path, made, about in (
        (
            "github" in wanted.ci,
            ".github/workflows/policies.yaml",
            [_github()],
            "Tests the policies of each pull request, and shows what fails at its line.",
        ),
        (
            "gitlab" in wanted.ci,
            ".gitlab-ci.yml",
            [_gitlab()],
            "Tests the policies of each merge request, which shows the cases that fail.",
        ),
        (
            wanted.hook,
            ".pre-commit-config.yaml",
            [_hook()],
            "Tests the policies of each commit. Install it with `pre-commit install`.",
        ),
        (
            "argocd" in wanted.gitops,
            "deploy/values.yaml",
            [_values(wanted)],
            "Values of policyd's chart for Argo CD: `helm show values` lists all of them.",
        ),
        (
            "argocd" in wanted.gitops,
            "deploy/argocd.yaml",
            _argo_cd(wanted),
            "Argo CD: policyd's chart, and the policies of this repository.",
        ),
        (
            "flux" in wanted.gitops,
            "deploy/flux.yaml",
            _flux(wanted),
            "Flux: policyd's chart with its values, and the policies of this repository.",
        ),
    ):
        if asked:
            yield path, _written(made, about)
    yield "README.md", _readme(wanted).encode()


def _written(documents: Iterable[Any], about: str) -> bytes:
    texts = [yaml.safe_dump(each, sort_keys=False, width=100) for each in documents]
    return (f"# {about}\n" + "---\n".join(texts)).encode()


def _kustomization(wanted: RepositoryOptions) -> bytes:
    made: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{name}/policy.yaml" for name in wanted.policies],
    }
    if wanted.enforcement != "Deny":
        patch = f"- op: add\n  path: /spec/enforcement\n  value: {wanted.enforcement}\n"
        made["patches"] = [
            {"target": {"group": "policyd.io", "kind": "Policy"}, "patch": patch},
        ]
    about = "What a cluster gets: kubectl apply --server-side -k policies/"
    return _written([made], about)


_REQUIREMENTS: Final = f"""\
# What CI and the hook install. Name where your organisation has policyd: an index, a wheel or a
# repository, such as policyd @ git+https://git.example/policyd.git
policyd=={__version__}
"""

_CHECKS: Final = ("policyd check policies/", "policyd test --together policies/")
_REPORT: Final = "policyd test --together -o {} policies/ > {}"
"""Tells of policies that are wrong as well as of cases that fail."""


def _values(wanted: RepositoryOptions) -> dict[str, Any]:
    return {
        "image": {"repository": "registry.example/policyd"},
        # The policies are those of the repository, so that they are not installed twice.
        "policies": {"enabled": False},
        **({"webhooks": {"serveV1beta1": True}} if wanted.serves_v1beta1 else {}),
    }


def _github() -> dict[str, Any]:
    return {
        "name": "policies",
        "on": {"pull_request": {}, "push": {"branches": ["main"]}},
        "permissions": {"contents": "read", "security-events": "write"},
        "jobs": {
            "policies": {
                "runs-on": "ubuntu-latest",
                "steps": [
                    {"uses": "actions/checkout@v4"},
                    {"uses": "actions/setup-python@v5", "with": {"python-version": _PYTHON}},
                    {"run": "pip install -r requirements.txt"},
                    *({"run": each} for each in _CHECKS),
                    {"run": _REPORT.format("sarif", "policyd.sarif"), "if": "failure()"},
                    {
                        "uses": "github/codeql-action/upload-sarif@v3",
                        "if": "failure()",
                        "with": {"sarif_file": "policyd.sarif"},
                    },
                ],
            }
        },
    }


def _gitlab() -> dict[str, Any]:
    return {
        "policies": {
            "image": f"python:{_PYTHON}",
            "rules": [
                {"if": "$CI_PIPELINE_SOURCE == 'merge_request_event'"},
                {"if": "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH"},
            ],
            "script": ["pip install -r requirements.txt", *_CHECKS],
            # What fails ends the script, and the report is for what fails.
            "after_script": [_REPORT.format("junit", "policyd.xml")],
            "artifacts": {"when": "always", "reports": {"junit": "policyd.xml"}},
        }
    }


def _hook() -> dict[str, Any]:
    return {
        "repos": [
            {
                "repo": "local",
                "hooks": [
                    {
                        "id": f"policyd-{each.split()[1]}",
                        "name": each,
                        "entry": each,
                        "language": "system",
                        "files": "^policies/",
                        "pass_filenames": False,
                    }
                    for each in _CHECKS
                ],
            }
        ]
    }


_SYNC: Final[dict[str, Any]] = {
    "automated": {"prune": True, "selfHeal": True},
    "syncOptions": [
        "CreateNamespace=true",
        "ServerSideApply=true",
        "RespectIgnoreDifferences=true",
    ],
    # The policies have no kind until the chart is there; five attempts are the default.
    "retry": {"limit": -1, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "3m"}},
}


def _argo_cd(wanted: RepositoryOptions) -> list[Any]:
    url = wanted.url
    definitions = {"skipCrds": True} if wanted.serves_v1beta1 else {}
    server = {"server": "https://kubernetes.default.svc"}
    head: dict[str, Any] = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}
    chart: dict[str, Any] = {
        **head,
        "metadata": {
            "name": "policyd",
            "namespace": "argocd",
            "annotations": {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"},
        },
        "spec": {
            "project": "default",
            "destination": {**server, "namespace": _NAMESPACE},
            "sources": [
                {
                    "repoURL": "https://git.example/policyd.git",
                    "targetRevision": f"v{__version__}",
                    "path": "charts/policyd",
                    "helm": {"valueFiles": ["$repository/deploy/values.yaml"], **definitions},
                },
                {"repoURL": url, "targetRevision": "main", "ref": "repository"},
            ],
            "syncPolicy": _SYNC,
            "ignoreDifferences": for_argo_cd(of_chart=True),
        },
    }
    policies: dict[str, Any] = {
        **head,
        "metadata": {
            "name": "policies",
            "namespace": "argocd",
            "annotations": {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"},
        },
        "spec": {
            "project": "default",
            "destination": {**server, "namespace": "default"},
            "source": {"repoURL": url, "targetRevision": "main", "path": "policies"},
            "syncPolicy": _SYNC,
            "ignoreDifferences": for_argo_cd(of_chart=False),
        },
    }
    return [chart, policies]


def _flux(wanted: RepositoryOptions) -> list[Any]:
    url, definitions = wanted.url, "Create" if wanted.serves_v1beta1 else "CreateReplace"
    source = "source.toolkit.fluxcd.io/v1"
    at = {"namespace": "flux-system"}

    def repository(name: str, address: str, reference: dict[str, str]) -> dict[str, Any]:
        spec = {"interval": "5m", "url": address, "ref": reference}
        metadata = {"name": name, **at}
        return {"apiVersion": source, "kind": "GitRepository", "metadata": metadata, "spec": spec}

    release = {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "policyd", **at},
        "spec": {
            "interval": "10m",
            "releaseName": "policyd",
            "targetNamespace": _NAMESPACE,
            "install": {"createNamespace": True, "crds": definitions},
            "upgrade": {"crds": definitions},
            "chart": {
                "spec": {
                    "chart": "./charts/policyd",
                    "sourceRef": {"kind": "GitRepository", "name": "policyd"},
                }
            },
            "values": _values(wanted),
            "driftDetection": {"mode": "enabled", "ignore": for_flux()},
        },
    }
    policies: dict[str, Any] = {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": "policies", **at},
        "spec": {
            "interval": "10m",
            "path": "./policies",
            "prune": True,
            "sourceRef": {"kind": "GitRepository", "name": "policies"},
        },
    }
    chart = repository("policyd", "https://git.example/policyd.git", {"tag": f"v{__version__}"})
    return [chart, release, repository("policies", url, {"branch": "main"}), policies]


_PACKAGE: Final = "- In `requirements.txt`: where CI gets policyd from."
_VALUES_IN: Final[Mapping[GitOps, str]] = {
    "argocd": "deploy/values.yaml",
    "flux": "deploy/flux.yaml",
}


def _readme(wanted: RepositoryOptions) -> str:
    parts = [
        "# Policies\n",
        "Policies of policyd for our clusters, each in a folder with its test cases.\n",
        "```sh",
        "pip install -r requirements.txt",
        *_CHECKS,
        "```\n",
        "| Policy of the library | Purpose |",
        "|---|---|",
        *(
            f"| [`{name}`](policies/{name}/README.md) | {wanted.purposes[name]} |"
            for name in wanted.policies
        ),
        "",
        "To change a policy, change its `policy.yaml` and its `cases.yaml` together.",
        "`policyd library list` lists more policies, and `policyd library copy NAME` adds one:"
        " name it in `policies/kustomization.yaml` too.\n",
    ]
    if wanted.enforcement != "Deny":
        parts.append(
            f"In clusters, all policies have the enforcement {wanted.enforcement}, by the patch in"
            " `policies/kustomization.yaml`. Remove the patch to let them refuse.\n"
        )
    if wanted.hook:
        parts.append("`pre-commit install` tests each commit.\n")
    parts += ["## Before the first use\n", _PACKAGE]
    if wanted.gitops:
        parts += [
            f"- In {' and '.join(f'`deploy/{each}.yaml`' for each in wanted.gitops)}: the addresses"
            " of the repositories, of policyd and of these policies, and their branches.",
            f"- In {' and '.join(f'`{_VALUES_IN[each]}`' for each in wanted.gitops)}: the image,"
            " and other values of the chart.",
        ]
    if wanted.gitops and wanted.serves_v1beta1:
        parts.append(
            "- The webhooks write v1beta1 into the definitions of Kueue's kinds, so the tools leave"
            " these alone. Before the first sync of Argo CD, install them:"
            " `policyd crds | kubectl apply --server-side -f -`."
        )
    places = "requirements.txt deploy" if wanted.gitops else "requirements.txt"
    parts.append(f"\n`grep -rn example {places}` finds what is not set yet.\n")
    return "\n".join(parts)


_REGISTRATION: Final = "admissionregistration.k8s.io"
_CONFIGURATION: Final = "admission.policyd.io"


class IgnoredFields(NamedTuple):
    """Fields of some objects, as JSON pointers.

    Attributes:
        group: API group.
        kind: Kind.
        fields: The fields.
        why: Who writes them.
        name: The object, if it is one of the chart; "" for all of the kind.
    """

    group: str
    kind: str
    fields: tuple[str, ...]
    why: str
    name: str = ""


def ignored_fields() -> Iterator[IgnoredFields]:
    """Yield the fields that are not to be compared with Git."""
    for when in ("Mutating", "Validating"):
        kind = f"{when}WebhookConfiguration"
        why = "the webhooks write them for the policies in force, with their caBundle"
        yield IgnoredFields(_REGISTRATION, kind, ("/webhooks",), why, name=_CONFIGURATION)
    why = "the webhooks write their certificate"
    yield IgnoredFields("", "Secret", ("/data",), why, name="policyd-webhooks")
    for name, fields, why in (
        (
            "policyd-controller-memory",
            ("/binaryData",),
            "the controller writes what forecasts learnt",
        ),
        ("policyd-controller-hours", ("/binaryData",), "the controller writes the GPU-hours"),
        ("policyd-background", ("/binaryData", "/data"), "`policyd background` writes its record"),
    ):
        yield IgnoredFields("", "ConfigMap", fields, why, name=name)
    for name in ("policyd-controller", "policyd-background"):
        why = "the leading replica renews it"
        yield IgnoredFields("coordination.k8s.io", "Lease", ("/spec",), why, name=name)
    for kind in ("ClusterQueue", "LocalQueue"):
        why = "`policyd stop` and `policyd resume` write it"
        yield IgnoredFields(GROUP, kind, ("/spec/stopPolicy",), why)
    for job in KINDS:
        field = "/" + "/".join(map(str, job.suspend_path))
        why = "the queue suspends jobs, and starts them"
        yield IgnoredFields(job.group, job.kind, (field,), why)


def for_argo_cd(*, of_chart: bool) -> list[Json]:
    """Return the rules as `ignoreDifferences` of an Application of Argo CD has them."""
    found: list[Json] = []
    for each in ignored_fields():
        if bool(each.name) is of_chart:
            named = {"name": each.name} if each.name else {}
            found.append(
                {"group": each.group, "kind": each.kind, **named, "jsonPointers": [*each.fields]}
            )
    return found


def for_flux() -> list[Json]:
    """Return the rules for the chart as `driftDetection.ignore` of a HelmRelease has them."""
    return [
        {"paths": [*each.fields], "target": {"kind": each.kind, "name": each.name}}
        for each in ignored_fields()
        if each.name
    ]
