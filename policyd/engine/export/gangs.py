"""The part of `inject` that forms gangs: of plain pods, and of the pods of a Job."""

import msgspec

from policyd.api.kueue.names import MIN_PARALLELISM, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT
from policyd.engine.export.inject import ExportedField
from policyd.engine.export.patch import PatchText, at
from policyd.engine.export.places import both
from policyd.engine.inject.templates import set_fields


def gang_of_pods(injection: ExportedField, patch: PatchText, gang: msgspec.Struct) -> None:
    """Make a plain pod a member of a group; without a name, only if it is in one already."""
    injection.refuse_override()
    fields = set_fields(gang)
    label = ("metadata", "labels", POD_GROUP_NAME)
    annotations = ("metadata", "annotations")
    names = (at(patch.base, *label), at(patch.base, *annotations, POD_GROUP_NAME))
    given = " || ".join(f"{name}.orValue('') != ''" for name in names)
    named = ""
    if "name" in fields:
        name = injection.certain(fields["name"])
        when = both(injection.when, f"{name} != ''", f"{names[1]}.orValue('') == ''")
        patch.put(name, *label, when=when, absent=f"{names[0]}.orValue('') == ''")
        named = f"{name} != '' || "
    size = f"string({injection.certain(fields['minMember'])})"
    absent = injection.missing(patch, *annotations, POD_GROUP_TOTAL_COUNT)
    when = both(injection.when, f"{named}{given}")
    patch.put(size, *annotations, POD_GROUP_TOTAL_COUNT, when=when, absent=absent)


def gang_of_job(injection: ExportedField, patch: PatchText, gang: msgspec.Struct) -> None:
    """Let a Job start with fewer pods than it wants, but no fewer than the gang."""
    size = injection.certain(set_fields(gang)["minMember"])
    fewer = f"int({size}) < {at(patch.base, 'spec', 'parallelism')}.orValue(0)"
    steps = ("metadata", "annotations", MIN_PARALLELISM)
    absent = injection.missing(patch, *steps)
    patch.put(f"string({size})", *steps, when=both(injection.when, fewer), absent=absent)
