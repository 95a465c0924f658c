"""Expressions of which several elements fail, and the key that the API server's error names."""

A, B = "object.metadata.labels.a", "object.metadata.labels.b"
BOTH = f"[{A}, {B}]"
OF = "{{'q': true}}[{}]"
"""Fails, and names what it is asked for: `aa` or `bb`."""


def _of(key):
    return OF.format(key)


FAILING = {
    "filter": (f"{BOTH}.filter(e, {_of('e')}) == []", "bb"),
    "filter-and-one-that-holds": (
        f"[1, 2, 3].filter(e, e == 1 ? {_of(A)} : e == 2 ? {_of(B)} : true) == []",
        "bb",
    ),
    "map": (f"{BOTH}.map(e, {_of('e')}) == []", "aa"),
    "map-conditions": (f"{BOTH}.map(e, {_of('e')}, e) == []", "bb"),
    "map-values": (f"{BOTH}.map(e, true, {_of('e')}) == []", "aa"),
    "map-condition-after-value": (
        f"[1, 2].map(e, e == 1 ? true : {_of(B)}, {_of(A)}) == []",
        "bb",
    ),
    "map-condition-before-value": (
        f"[1, 2].map(e, e == 2 ? true : {_of(B)}, {_of(A)}) == []",
        "bb",
    ),
    "exists-one": (f"{BOTH}.exists_one(e, {_of('e')})", "bb"),
    "exists-one-with-an-index": (f"{BOTH}.existsOne(i, e, {_of('e')})", "bb"),
    "all": (f"{BOTH}.all(e, {_of('e')})", "aa"),
    "exists": (f"{BOTH}.exists(e, {_of('e')})", "aa"),
    "transform-list": (f"{BOTH}.transformList(i, e, {_of('e')}) == []", "aa"),
    "transform-list-conditions": (f"{BOTH}.transformList(i, e, {_of('e')}, e) == []", "bb"),
    "transform-map": (f"{BOTH}.transformMap(i, e, {_of('e')}).size() == 0", "aa"),
    "transform-map-conditions": (f"{BOTH}.transformMap(i, e, {_of('e')}, e).size() == 0", "bb"),
    "transform-map-condition-after-value": (
        f"[1, 2].transformMap(i, e, e == 1 ? true : {_of(B)}, {_of(A)}).size() == 0",
        "bb",
    ),
    "transform-entries-conditions": (
        f"{BOTH}.transformMapEntry(i, e, {_of('e')}, {{e: 1}}).size() == 0",
        "bb",
    ),
    "nested": (f"[[{A}], [{B}]].filter(l, l.filter(e, {_of('e')}) == []) == []", "bb"),
    "all-in-filter": (f"[[{A}], [{B}]].filter(l, l.all(e, {_of('e')})) == []", "bb"),
}
"""By what fails."""

VARIABLES = {
    "two-of-one-name": ([("v", "1"), ("v", "2")], "variables.v == 2"),
    "of-two-types": ([("v", "1"), ("v", "'a'")], "variables.v == 'a'"),
    "one-between": ([("v", "1"), ("w", "variables.v"), ("v", "2")], "variables.w == 2"),
}
"""Variables of which two have one name, and an expression that the API server finds true."""
