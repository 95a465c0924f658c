"""Functions of JMESPath that need what Kyverno adds to CEL: a clock, codecs, hashes, expressions.

Policies that use one become Kyverno's own kinds. Those of moments that need no clock are written
for any kind.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import CelTerm, OutsideError, Untranslatable
from policyd.migrate.jmespath_functions import called

_RFC3339: Final = frozenset(["", "2006-01-02T15:04:05Z07:00", "RFC3339"])
_GROUP: Final = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")
_MOST_GROUPS: Final = 9


# Moments.


def _moment(of: CelTerm) -> str:
    return of.tight if of.kind == "timestamp" else f"timestamp({of.text})"


def _length(of: CelTerm) -> str:
    return of.tight if of.kind == "duration" else f"duration({of.text})"


def _check_layout(layout: CelTerm) -> None:
    if layout.literal not in _RFC3339:
        raise Untranslatable(f"CEL reads times as RFC 3339 only, not as {layout.text}")


def _between(layout: CelTerm, start: CelTerm, end: CelTerm) -> CelTerm:
    _check_layout(layout)
    made = called(f"{_moment(end)} - {_moment(start)}", "duration", start, end)
    return replace(made, loose=True)


def _since(layout: CelTerm, start: CelTerm, end: CelTerm) -> CelTerm:
    if end.literal == "":
        raise OutsideError("only Kyverno's kinds know what time it is")
    return _between(layout, start, end)


def _since_now(layout: CelTerm, start: CelTerm, end: CelTerm) -> CelTerm:
    return _between(layout, start, _now() if end.literal == "" else end)


def _now() -> CelTerm:
    return CelTerm(text="time.now()", kind="timestamp")


def _later(of: CelTerm, length: CelTerm) -> CelTerm:
    made = called(f"{_moment(of)} + {_length(length)}", "timestamp", of, length)
    return replace(made, loose=True)


def _compared(relation: str) -> Callable[[CelTerm, CelTerm], CelTerm]:
    def make(one: CelTerm, other: CelTerm) -> CelTerm:
        made = called(f"{_moment(one)} {relation} {_moment(other)}", "bool", one, other)
        return replace(made, loose=True)

    return make


def _within(of: CelTerm, start: CelTerm, end: CelTerm) -> CelTerm:
    text = f"{_moment(start)} < {_moment(of)} && {_moment(of)} < {_moment(end)}"
    return replace(called(text, "bool", of, start, end), loose=True)


def _parsed(layout: CelTerm, of: CelTerm) -> CelTerm:
    _check_layout(layout)
    return _utc(of)


def _utc(of: CelTerm) -> CelTerm:
    return called(_moment(of), "timestamp", of)


def _cron(of: CelTerm) -> CelTerm:
    return called(f"time.toCron({_moment(of)})", "string", of)


def _truncated(of: CelTerm, length: CelTerm) -> CelTerm:
    return called(f"time.truncate({_moment(of)}, {_length(length)})", "timestamp", of, length)


MOMENTS: Final[Mapping[str, Callable[..., CelTerm]]] = {
    "time_add": _later,
    "time_after": _compared(">"),
    "time_before": _compared("<"),
    "time_between": _within,
    "time_diff": _between,
    "time_parse": _parsed,
    "time_since": _since,
    "time_utc": _utc,
}
"""Functions of moments that CEL for admission has, too."""


# Texts.


def _of_text(shape: str, kind: str = "string") -> Callable[[CelTerm], CelTerm]:
    def make(of: CelTerm) -> CelTerm:
        text = of.text if of.kind in ("string", "dyn") else f"string({of.text})"
        return called(shape.format(text), kind, of)

    return make


def _written(of: CelTerm) -> CelTerm:
    return called(f"json.marshal({of.text})", "string", of)


def _replaced(pattern: CelTerm, of: CelTerm, replacement: CelTerm) -> CelTerm:
    if not replacement.is_literal:
        raise Untranslatable("regex_replace_all() has a replacement that is computed")
    return _replacing(pattern, of, _GROUP.sub(_group, _escaped(str(replacement.literal))))


def _replaced_literally(pattern: CelTerm, of: CelTerm, replacement: CelTerm) -> CelTerm:
    if not replacement.is_literal:
        raise Untranslatable("regex_replace_all_literal() has a replacement that is computed")
    return _replacing(pattern, of, _escaped(str(replacement.literal)))


def _replacing(pattern: CelTerm, of: CelTerm, template: str) -> CelTerm:
    text = f"regex.replace({of.text}, {pattern.text}, {text_literal(template)})"
    return called(text, "string", of, pattern)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\")


def _group(found: re.Match[str]) -> str:
    r"""Return a group of a match as CEL names it: `\1`, where Kyverno has `$1` or `${1}`."""
    name = found[1] or found[2]
    if name is None:
        return "$"
    if not name.isdigit() or int(name) > _MOST_GROUPS:
        raise Untranslatable(f"a replacement names the group `{name}`, which CEL cannot")
    return f"\\{int(name)}"


KYVERNO_FUNCTIONS: Final[Mapping[str, Callable[..., CelTerm]]] = {
    "base64_decode": _of_text("string(base64.decode({}))"),
    "base64_encode": _of_text("base64.encode(bytes({}))"),
    "md5": _of_text("md5({})"),
    "parse_json": _of_text("json.unmarshal({})", "dyn"),
    "parse_yaml": _of_text("yaml.parse({})", "dyn"),
    "random": _of_text("random({})"),
    "regex_replace_all": _replaced,
    "regex_replace_all_literal": _replaced_literally,
    "sha1": _of_text("sha1({})"),
    "sha256": _of_text("sha256({})"),
    "time_now": _now,
    "time_now_utc": _now,
    "time_since": _since_now,
    "time_to_cron": _cron,
    "time_truncate": _truncated,
    "to_string": _written,
    "x509_decode": _of_text("x509.decode({})", "map"),
}
"""How functions are written in the CEL of Kyverno's own kinds."""
