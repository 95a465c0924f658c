"""Values and changes for the properties of patches."""

from hypothesis import strategies as st

FIELDS = st.sampled_from(["a", "b", "c/d", "e~f", "", "0", "-"])

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, 1.0, 2.5])
    | st.sampled_from(["", "x", "y"])
)


def containers(children):
    return st.lists(children, max_size=4) | st.dictionaries(FIELDS, children, max_size=4)


VALUES = st.recursive(SCALARS, containers, max_leaves=12)
OBJECTS = st.dictionaries(FIELDS, VALUES, max_size=4)


def paths_of(value, path=()):
    """Every path in `value`, the root's included."""
    yield path
    if isinstance(value, dict):
        for name, child in value.items():
            yield from paths_of(child, (*path, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from paths_of(child, (*path, index))
