"""Regular expressions of RE2 in the solver's own form."""

import re
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from typing import Any, Final

import z3

from policyd.prove.values import UnencodableError, text_term

_LAST: Final = 0x2FFFF
"""The last character of the solver's strings."""
_LONGEST: Final = 500
_MOST_REPEATS: Final = 64
_OTHERWISE_IN_RE2: Final = re.compile(r"\[:|\{,")
"""What Python reads in another way: names of classes, and repetitions without a least number."""


def matching(text: Any, pattern: str) -> Any:  # noqa: ANN401 - terms of z3
    """Return the condition that a regular expression matches somewhere in a text.

    Raises:
        UnencodableError: If it has a construct that the solver lacks.
    """
    if len(pattern) > _LONGEST or _OTHERWISE_IN_RE2.search(pattern):
        raise UnencodableError(f"the regular expression {pattern!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of sets within sets, for instance
            tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError, FutureWarning) as error:
        raise UnencodableError(f"the regular expression {pattern!r}") from error
    if tree.state.flags & ~re.UNICODE:
        raise UnencodableError(f"the regular expression {pattern!r}")
    return z3.InRe(text, _anywhere(list(tree), pattern))


def _anywhere(parts: list[Any], pattern: str) -> Any:  # noqa: ANN401 - a term of z3
    """Return the language of texts in which a sequence matches somewhere."""
    if len(parts) == 1 and parts[0][0] is kinds.BRANCH:
        return _union([_anywhere(list(branch), pattern) for branch in parts[0][1][1]])
    if len(parts) == 1 and parts[0][0] is kinds.SUBPATTERN:
        _, added, removed, inner = parts[0][1]
        if _has_anchor(inner) and not added and not removed:
            return _anywhere(list(inner), pattern)
    start = bool(parts) and parts[0] == (kinds.AT, kinds.AT_BEGINNING)
    parts = parts[1:] if start else parts
    end = bool(parts) and parts[-1] == (kinds.AT, kinds.AT_END)
    parts = parts[:-1] if end else parts
    everything = z3.Star(z3.AllChar(z3.ReSort(z3.StringSort())))
    pieces = [_one(part, pattern) for part in parts]
    return _sequence([*([] if start else [everything]), *pieces, *([] if end else [everything])])


def _has_anchor(parts: Any) -> bool:  # noqa: ANN401 - a part of the parser
    return any(
        part[0] is kinds.AT
        or (part[0] is kinds.BRANCH and any(_has_anchor(branch) for branch in part[1][1]))
        for part in parts
    )


def _sequence(pieces: list[Any]) -> Any:  # noqa: ANN401 - a term of z3
    if not pieces:
        return z3.Re(text_term(""))
    return pieces[0] if len(pieces) == 1 else z3.Concat(*pieces)


def _union(pieces: list[Any]) -> Any:  # noqa: ANN401 - a term of z3
    return pieces[0] if len(pieces) == 1 else z3.Union(*pieces)


def _one(part: Any, pattern: str) -> Any:  # noqa: ANN401, PLR0911 - one for each kind of part
    kind, value = part
    if kind is kinds.LITERAL:
        return z3.Re(_character(value, pattern))
    if kind is kinds.NOT_LITERAL:
        return _without(z3.Re(_character(value, pattern)))
    if kind is kinds.ANY:
        return _without(z3.Re(text_term("\n")))
    if kind is kinds.IN:
        return _class(value, pattern)
    if kind is kinds.BRANCH:
        return _union([_all(branch, pattern) for branch in value[1]])
    if kind is kinds.SUBPATTERN and not value[1] and not value[2]:
        return _all(value[3], pattern)
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
        return _repeated(value, pattern)
    raise UnencodableError(f"the regular expression {pattern!r}")


def _all(parts: Any, pattern: str) -> Any:  # noqa: ANN401 - parts of the parser, a term of z3
    return _sequence([_one(part, pattern) for part in parts])


def _repeated(value: Any, pattern: str) -> Any:  # noqa: ANN401 - parts of the parser, a term of z3
    least, most, parts = value
    inner = _all(parts, pattern)
    if most is kinds.MAXREPEAT:
        if least == 0:
            return z3.Star(inner)
        if least == 1:
            return z3.Plus(inner)
        return z3.Concat(z3.Loop(inner, least, least), z3.Star(inner))
    if most > _MOST_REPEATS:
        raise UnencodableError(f"the regular expression {pattern!r}")
    return z3.Option(inner) if (least, most) == (0, 1) else z3.Loop(inner, least, most)


_CATEGORIES: Final = {
    kinds.CATEGORY_DIGIT: [("0", "9")],
    kinds.CATEGORY_WORD: [("0", "9"), ("A", "Z"), ("a", "z"), ("_", "_")],
    kinds.CATEGORY_SPACE: [("\t", "\n"), ("\f", "\r"), (" ", " ")],
}
"""As RE2 has them: of ASCII only."""
_NEGATED: Final = {
    kinds.CATEGORY_NOT_DIGIT: kinds.CATEGORY_DIGIT,
    kinds.CATEGORY_NOT_WORD: kinds.CATEGORY_WORD,
    kinds.CATEGORY_NOT_SPACE: kinds.CATEGORY_SPACE,
}


def _class(parts: Any, pattern: str) -> Any:  # noqa: ANN401 - parts of the parser, a term of z3
    negated = parts[0][0] is kinds.NEGATE
    made = []
    for kind, value in parts[1:] if negated else parts:
        if kind is kinds.LITERAL:
            made.append(z3.Re(_character(value, pattern)))
        elif kind is kinds.RANGE:
            made.append(z3.Range(_character(value[0], pattern), _character(value[1], pattern)))
        elif kind is kinds.CATEGORY and value in _CATEGORIES:
            made.append(_category(value))
        elif kind is kinds.CATEGORY and value in _NEGATED:
            made.append(_without(_category(_NEGATED[value])))
        else:
            raise UnencodableError(f"the regular expression {pattern!r}")
    return _without(_union(made)) if negated else _union(made)


def _category(name: Any) -> Any:  # noqa: ANN401 - a name of the parser, a term of z3
    return _union([z3.Range(first, last) for first, last in _CATEGORIES[name]])


def _without(characters: Any) -> Any:  # noqa: ANN401 - terms of z3
    any_character = z3.AllChar(z3.ReSort(z3.StringSort()))
    return z3.Intersect(any_character, z3.Complement(characters))


def _character(code: int, pattern: str) -> Any:  # noqa: ANN401 - a term of z3
    if code > _LAST:
        raise UnencodableError(f"the regular expression {pattern!r}")
    return text_term(chr(code))
