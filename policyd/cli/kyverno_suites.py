"""The files that a Kyverno test names: read, and handed to the engine."""

from collections.abc import Iterable
from pathlib import Path

from policyd.api.admission import UserInfo
from policyd.api.meta import Json
from policyd.cli.files import content, load, read_objects
from policyd.engine.cases import Outcome
from policyd.engine.documents import read_documents
from policyd.engine.findings import Finding
from policyd.engine.kyverno.declared import declared_values
from policyd.engine.kyverno.suites import Given, KyvernoTest, read_suite, run_suite
from policyd.engine.workloads import value_at


def run_file(path: Path, keyword: str) -> tuple[tuple[Outcome, ...], tuple[Finding, ...]]:
    """Run the rows of a file of Kyverno tests, or say why none can be run.

    Raises:
        click.UsageError: If a file that it names cannot be read.
    """
    documents, findings = read_documents(content(path), str(path))
    if findings or len(documents) != 1:
        message = "not one document with `results`"
        return (), tuple(findings or [Finding(source=str(path), message=message, line=1)])
    suite, findings = read_suite(documents[0])
    if suite is None:
        return (), tuple(findings)
    given = _read(suite, path.parent)
    wrong = tuple(f for f in given.loaded.findings if f.severity == "error")
    if wrong:
        return (), wrong
    return tuple(o for o in run_suite(suite, given) if keyword in o.case.name), ()


def _read(suite: KyvernoTest, folder: Path) -> Given:
    files = [str(folder / name) for name in (*suite.policies, *suite.exceptions)]
    users = _objects(folder, filter(None, [suite.userinfo]))
    user = value_at(users[0] if users else None, ("userInfo",)) or {}
    contexts = _objects(folder, filter(None, [suite.context, *suite.cluster_resources]))
    cluster = [o for document in contexts for o in _declared(document)]
    return Given(
        loaded=load(files),
        resources=_objects(folder, suite.resources),
        params=_objects(folder, suite.param_resources),
        patched={
            name: _objects(folder, [name])
            for name in {row.patched_resources for row in suite.results} - {""}
        },
        values=next(iter(_objects(folder, filter(None, [suite.variables]))), suite.values),
        user=UserInfo(
            username=user.get("username", "someone"), groups=tuple(user.get("groups") or ())
        ),
        outside=declared_values(
            objects=cluster,
            images=[i for each in contexts for i in value_at(each, ("spec", "images")) or ()],
            responses=suite.api_call_responses,
            entries=[_filled(entry, folder) for entry in suite.global_context_entries],
        ),
        namespaces=cluster,
    )


def _declared(document: Json) -> list[Json]:
    """Return the objects of a cluster that a file declares, or is itself."""
    if value_at(document, ("kind",)) in ("Context", "ClusterResource"):
        return value_at(document, ("spec", "resources")) or []
    return [document]


def _filled(entry: dict[str, Json], folder: Path) -> dict[str, Json]:
    """Return an entry of the global context with the objects of the files that it names."""
    files = entry.get("resourceFiles")
    return {**entry, "resources": _objects(folder, files)} if files else entry


def _objects(folder: Path, names: Iterable[str]) -> list[Json]:
    documents, _ = read_objects([str(folder / name) for name in names])
    return [document.value for document in documents]
