"""The files that a Kyverno test names: read, and handed to the engine."""

from collections.abc import Iterable
from pathlib import Path

from policyd.api.admission import UserInfo
from policyd.api.meta import Json
from policyd.cli.files import content, load
from policyd.engine.cases import Outcome
from policyd.engine.documents import read_documents
from policyd.engine.findings import Finding
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
    return Given(
        loaded=load(files),
        resources=_objects(folder, suite.resources),
        params=_objects(folder, suite.param_resources),
        patched={
            name: _objects(folder, [name])
            for name in {row.patched_resources for row in suite.results} - {""}
        },
        values=next(iter(_objects(folder, filter(None, [suite.variables]))), None),
        user=UserInfo(
            username=user.get("username", "someone"), groups=tuple(user.get("groups") or ())
        ),
    )


def _objects(folder: Path, names: Iterable[str]) -> list[Json]:
    return [
        document.value
        for name in names
        for document in read_documents(content(folder / name), name)[0]
    ]
