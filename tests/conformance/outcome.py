"""What became of a case, and of a suite."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """A case passed, failed (`why`), or is out of scope by a `rule` that names a feature."""

    case: str
    why: str = ""
    rule: str = ""


def judge(case: str, failure: Callable[[], str]) -> Outcome:
    """Run one case: `failure` says why it fails, "" if it does not. A crash is a failure too."""
    try:
        return Outcome(case, why=failure())
    except Exception as error:  # noqa: BLE001 - one case that crashes must not hide the others
        return Outcome(case, why=f"unexpected {type(error).__name__}: {error}")


def _until_crash(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Yield outcomes; a crash between two cases is one more failure, and the end."""
    try:
        yield from outcomes
    except Exception as error:  # noqa: BLE001 - one suite that crashes must not hide the others
        yield Outcome("the runner", why=f"stopped by {type(error).__name__}: {error}")


@dataclass
class SuiteResult:
    """What became of the cases of one file or table; `no_adapter`: nothing runs them yet."""

    suite: str
    cases: int = 0
    passed: int = 0
    no_adapter: bool = False
    out_of_scope: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, suite: str, outcomes: Iterable[Outcome]) -> "SuiteResult":
        result = cls(suite)
        for outcome in _until_crash(outcomes):
            result.cases += 1
            if outcome.rule:
                result.out_of_scope[outcome.rule] += 1
            elif outcome.why:
                result.failures.append({"case": outcome.case, "why": outcome.why})
            else:
                result.passed += 1
        return result

    @property
    def in_scope(self) -> int:
        return self.cases - sum(self.out_of_scope.values())

    def as_json(self):
        described = {
            "suite": self.suite,
            "cases": self.cases,
            "passed": self.passed,
            "failed": len(self.failures),
            "out_of_scope": dict(self.out_of_scope),
            "failures": self.failures,
        }
        return {**described, "no_adapter": True} if self.no_adapter else described
