"""Feature gates that change validation."""

from typing import Final

import msgspec


class ValidationGates(msgspec.Struct, frozen=True, rename="pascal"):
    """Kueue's feature gates that change validation, with Kueue's defaults."""

    admission_gated_by: bool = True
    concurrent_admission: bool = False
    elastic_jobs_via_workload_slices: bool = True
    priority_boost: bool = False
    reject_updates_to_cq_with_invalid_on_flavors: bool = msgspec.field(
        default=True, name="RejectUpdatesToCQWithInvalidOnFlavors"
    )
    tas_validate_workload_slice_size: bool = msgspec.field(
        default=True, name="TASValidateWorkloadSliceSize"
    )
    workload_validate_resources_are_non_negative: bool = True
    workload_validation_for_pod_set_metadata: bool = True


DEFAULT_GATES: Final = ValidationGates()
