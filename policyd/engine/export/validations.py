"""The validations and audit annotations of a policy, as a ValidatingAdmissionPolicy has them."""

from functools import partial
from typing import Any

from policyd.api.meta import Json
from policyd.api.policy import Validation
from policyd.engine.export.expressions import NotExportableError
from policyd.engine.export.patch import literal
from policyd.engine.export.places import PodPlace, both
from policyd.engine.export.target import Exporter


class ValidationExporter(Exporter):
    """Writes what a policy demands."""

    def spec(self) -> dict[str, Json]:
        """Return the spec of a ValidatingAdmissionPolicy, empty if there is nothing to validate."""
        spec = self.policy.policy.spec
        if not spec.validations and not spec.audit_annotations:
            return {}
        validations = [
            self.attempt(("spec", "validations", i), partial(self._validation, v, i))
            for i, v in enumerate(spec.validations)
        ]
        annotations = [
            self.attempt(("spec", "auditAnnotations", i), partial(self._annotation, a))
            for i, a in enumerate(spec.audit_annotations)
        ]
        return {
            **self.shared(),
            **({"validations": validations} if validations else {}),
            **({"auditAnnotations": annotations} if annotations else {}),
        }

    def _validation(self, validation: Validation, index: int) -> dict[str, Json]:
        compiled = self.policy.validations[index]
        expression = self._demanded(validation, compiled.program.variables_used)
        for _, lifting in self.lifting(compiled.place):
            expression = f"({self.scope.rewrite(lifting)}) || ({expression})"
        written: dict[str, Json] = {"expression": self.late(expression, "true")}
        remedy = validation.remedy if isinstance(validation.remedy, str) else ""
        message = " ".join(compiled.message.split())
        written["message"] = f"{message}; {remedy}" if remedy else message
        computed = self._message(validation, index)
        if computed:
            written["messageExpression"] = computed
        return {**written, "reason": validation.reason}

    def _demanded(self, validation: Validation, used: frozenset[str]) -> str:
        if not self.several or not self.asks(used):
            return self.scope.rewrite(validation.expression)
        return " && ".join(
            place.all(self._unless_left_out(place, validation.expression)) for place in self.places
        )

    def _unless_left_out(self, place: PodPlace, source: str) -> str:
        demanded, chosen = f"({self.at(place).rewrite(source)})", self.chosen(place)
        return f"(!({chosen}) || {demanded})" if chosen else demanded

    def _message(self, validation: Validation, index: int) -> str:
        """Return what computes the message and the remedy, empty if both are written out."""
        compiled = self.policy.validations[index]
        remedy = validation.remedy
        if not validation.message_expression and isinstance(remedy, str):
            return ""
        source = validation.message_expression or literal(" ".join(compiled.message.split()))
        if isinstance(remedy, str):
            parts = [source, *([literal(f"; {remedy}")] if remedy else [])]
        else:
            parts = [source, "'; '", f"string({remedy.expression})"]
        source = " + ".join(f"({part})" for part in parts) if len(parts) > 1 else parts[0]
        if not self.several or not self.asks(self.uses(source)):
            return self.scope.rewrite(source)
        failing = [
            place.gather(
                both(self.chosen(place), f"!({self.at(place).rewrite(validation.expression)})"),
                self.at(place).rewrite(source),
            )
            for place in self.places
        ]
        return f"({' + '.join(failing)})[0]"

    def _annotation(self, annotation: Any) -> dict[str, Json]:  # noqa: ANN401 - of the policy
        if any(condition.late for condition in self.asked):
            raise NotExportableError("an annotation under a condition on the namespace")
        text = self.scope.rewrite(annotation.value_expression)
        return {"key": annotation.key, "valueExpression": text}
