"""What the schemas of CustomResourceDefinitions say of their fields."""

COMMON = frozenset({"apiVersion", "kind", "metadata"})
"""Fields of every object, which the API server describes."""


def undescribed(schema, path=""):
    """Return the paths of all fields below a schema that have no description."""
    found = []
    for name, part in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        if path or name not in COMMON:
            found += [] if part.get("description") else [below]
            found += undescribed(part, below)
    for part in (schema.get("items"), schema.get("additionalProperties")):
        found += undescribed(part, path) if isinstance(part, dict) else []
    return found
