"""Apply and compute JSON merge patches (RFC 7386): objects merge, null removes."""

from policyd.api.meta import Json


def apply_merge_patch(obj: Json, patch: Json) -> Json:
    """Apply a merge patch. The result shares unchanged parts with `obj`, which stays as is."""
    if not isinstance(patch, dict):
        return patch
    fields = obj if isinstance(obj, dict) else {}
    merged = dict(fields)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif not isinstance(value, dict):
            merged[name] = without_nulls(value)
        else:
            merged[name] = apply_merge_patch(fields.get(name), value)
    unchanged = fields is obj and len(merged) == len(fields) and _shares_all(merged, fields)
    return obj if unchanged else merged


def merge_difference(old: Json, new: Json) -> Json:
    """Return the merge patch that turns `old` into `new`, both objects; lists are replaced."""
    patch = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if before == value:
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[name] = merge_difference(before, value)
        else:
            patch[name] = value
    return patch


def without_nulls(value: Json) -> Json:
    """Drop the null fields of objects in a list: the API server does, though the RFC is silent."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return list(map(without_nulls, value)) if isinstance(value, list) else value


def _shares_all(merged: dict[str, Json], fields: dict[str, Json]) -> bool:
    return all(name in fields and value is fields[name] for name, value in merged.items())
