"""What became of a case, and of a suite."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """A case passed, failed (`why`), or is out of scope by a `rule` that names a feature."""

    case: str
    why: str = ""
    rule: str = ""


@dataclass
class SuiteResult:
    """What became of the cases of one file or table."""

    suite: str
    cases: int = 0
    passed: int = 0
    out_of_scope: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, suite: str, outcomes: Iterable[Outcome]) -> "SuiteResult":
        result = cls(suite)
        for outcome in outcomes:
            result.cases += 1
            if outcome.rule:
                result.out_of_scope[outcome.rule] += 1
            elif outcome.why:
                result.failures.append({"case": outcome.case, "why": outcome.why})
            else:
                result.passed += 1
        return result

    def as_json(self):
        return {
            "suite": self.suite,
            "cases": self.cases,
            "passed": self.passed,
            "failed": len(self.failures),
            "out_of_scope": dict(self.out_of_scope),
            "failures": self.failures,
        }
