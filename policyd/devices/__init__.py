"""Count the devices that pods get by ResourceClaims, as amounts of resources with quota. Pure.

Device classes are mapped to resources by the Configuration. Imports `api`, and `cel` once a
selector is to be evaluated. Start with `counting` (what one pod is charged), then `charges`
(counters and capacity) and `matching` (selectors of devices).
"""
