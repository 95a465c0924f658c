"""Kueue's tables of devices that pods get by claims: how many, and of which resource."""

import json

import msgspec

from policyd.api.configuration.kinds import DeviceClassMapping
from policyd.api.kueue import Workload
from policyd.api.quantity import parse_quantity
from policyd.devices.amounts import DeviceCountError
from policyd.devices.charges import (
    CapacityError,
    NoCapacityError,
    capacity_charge,
    counter_charge,
    to_valid_range,
    to_valid_value,
)
from policyd.devices.claims import ChargeRules, ClaimCount, DeviceGates
from policyd.devices.counting import DeviceCounter
from policyd.devices.extended import asks_for_devices, is_extended_resource, selected_class
from policyd.devices.inventory import Inventory, pools_of
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import (
    CapacityRange,
    ClaimSpec,
    DeviceClass,
    PublishedDevice,
    ResourceClaimTemplate,
    ResourceSlice,
)
from policyd.jobs.lifecycle import is_on_hold
from tests.conformance.kueue_objects import cases_of, convert, decode, read_table, run_table
from tests.conformance.kueue_scene import difference
from tests.conformance.outcome import Outcome, judge

TYPES = {
    "Invalid": "FieldValueInvalid",
    "Required": "FieldValueRequired",
    "NotFound": "FieldValueNotFound",
    "NotSupported": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Internal": "InternalError",
}
"""Kinds of errors, as Go calls them."""


def converted(bodies, into):
    return msgspec.json.decode(json.dumps(bodies or []), type=tuple[into, ...])


def mappings_of(bodies):
    return DeviceMappings.of(converted(bodies, DeviceClassMapping))


def differs(found, wanted):
    """Return how amounts differ; quantities count, not how they are written."""
    amounts = {n: parse_quantity(text).value() for n, text in (wanted or {}).items()}
    return difference(found, amounts, "amounts")


def errors_differ(errors, wanted):
    found = [(TYPES[each.problem], each.path) for each in errors]
    return difference(found, [(e["type"], e["field"]) for e in wanted or ()], "errors")


# Amounts.


def run_counters(path):
    def failure(case):
        columns = case.input or {}
        counter = columns["cc"] if columns else case.data["locals"]["cc"]
        resource = columns["quotaResource"] if columns else next(iter(case.want["want"]))
        if columns:
            devices, count = converted(columns["matched"], PublishedDevice), columns["count"]
        else:  # the case is about what is logged of this amount
            spent = {"counters": {counter["counterName"]: {"value": "-5"}}}
            devices, count = converted([{"consumesCounters": [spent]}], PublishedDevice), 1
        charge = counter_charge(devices, counter["counterName"], count)
        return differs({} if charge is None else {resource: charge}, case.want["want"])

    yield from run_table(path, failure)


def run_capacity(path):
    def failure(case):
        devices, want = converted(case.input["matched"], PublishedDevice), case.want
        name = case.data["locals"]["cfg"]["resourceName"]
        try:
            charge = capacity_charge(
                devices, name, case.input["count"], case.input["explicitRequest"]
            )
        except CapacityError as error:
            kind = "InternalError" if isinstance(error, NoCapacityError) else "FieldValueInvalid"
            return difference(kind, want["wantErrType"], "error")
        return difference("", want["wantErrType"], "error") or differs(
            {"charge": charge}, {"charge": want["wantCharge"]}
        )

    yield from run_table(path, failure)


def run_rounding(path):
    """Rounding to valid amounts: those listed, or those of a range."""

    def failure(case):
        columns, want = case.input, case.want
        base = parse_quantity(columns["value"])
        try:
            if "validValues" in case.data["input"]:
                found = to_valid_value(base, map(parse_quantity, columns["validValues"]))
            else:
                ends = {name: columns[name] for name in ("min", "max", "step") if columns[name]}
                found = to_valid_range(base, convert(ends, CapacityRange))
        except CapacityError:
            return "" if want["wantErr"] else "refused"
        if want["wantErr"]:
            return f"{found}, and no error"
        return "" if found == parse_quantity(want["want"]) else f"{found}"

    yield from run_table(path, failure)


# Mappings.


def run_mappings(path):
    def failure(case):
        mappings, want = mappings_of(case.input["deviceClassMappings"]), case.want
        for name, resource in (want["wantDeviceLookup"] or {}).items():
            if mappings.resources.get(name) != resource:
                return f"{name} is {mappings.resources.get(name)}, and not {resource}"
        return difference(
            {
                name: [
                    {"quotaResource": s.resource, "counterName": s.name, "driver": s.driver}
                    for s in mappings.counters.get(name, ())
                ]
                for name in want["wantCounterConfigsList"] or ()
            },
            want["wantCounterConfigsList"] or {},
            "counters",
        )

    yield from run_table(path, failure)


def run_lookups(path):
    """The resource of a class; mappings replace those before, as each process reads its own."""

    def failure(case):
        given = case.data["input"]
        mappings = mappings_of(given.get("updateConfig") or given.get("config"))
        if "config" not in given and "updateConfig" not in given:
            mappings = mappings_of(given.get("initialConfig"))
        for each in given.get("lookups") or given.get("finalLookups") or ():
            found = mappings.resources.get(each["deviceClass"])
            wanted = each.get("expectedRes") if each.get("expectedExists") else None
            if found != wanted:
                return f"{each['deviceClass']} is {found}, and not {wanted}"
        return "" if given else difference(dict(mappings.resources), {}, "mappings")

    yield from run_table(path, failure)


ONLY_GO = "the mappings of this table are in its Go code only"


def run_counted_resources(path):
    def failure(case):
        given = next(v for k, v in case.data["locals"].items() if "apping" in k)
        return difference(
            sorted(mappings_of(given).counted_resources), sorted(case.want["want"]), "resources"
        )

    def rule(case):
        known = case.data.get("locals") or {}
        listed = any("apping" in k and isinstance(v, list) for k, v in known.items())
        return "" if listed else ONLY_GO

    yield from run_table(path, failure, rule=rule)


# Devices.


def run_pools(path):
    def failure(case):
        pools = pools_of(converted(case.input["slices"], ResourceSlice), case.input["driver"])
        want = case.want
        return (
            difference(len(pools), want["wantPools"], "pools")
            or difference(
                {name: each.complete for name, each in pools.items()},
                want["wantComplete"] or {},
                "complete",
            )
            or difference(
                {name: each.generation for name, each in pools.items()},
                want["wantGeneration"] or {},
                "generation",
            )
        )

    yield from run_table(path, failure)


def run_slices(path):
    """Slices by driver. Kueue caches lists of them; here they are watched, and never listed."""
    table = read_table(path)
    shared = (table.get("setup") or {}).get("objects") or {}

    def failure(case):
        objects = {**shared, **case.objects}
        slices = converted(list(objects.values()), ResourceSlice)
        inventory = Inventory(slices)
        seen = {**(case.data.get("locals") or {}), **(case.data.get("observed") or {})}
        lists = [each for each in seen.values() if isinstance(each, list)]
        for wanted in (converted(each, ResourceSlice) for each in lists):
            drivers = sorted({each.spec.driver for each in wanted})
            found = inventory.slices(*drivers)
            names = [sorted(each.metadata.name for each in part) for part in (found, wanted)]
            if wanted and names[0] != names[1]:
                return f"{names[0]} instead of {names[1]}"
        return "" if lists and slices else "there is nothing to compare"

    for case in cases_of(table):
        lists = [v for v in (case.data.get("observed") or {}).values() if isinstance(v, list)]
        lists += [v for v in (case.data.get("locals") or {}).values() if isinstance(v, list)]
        rule = "" if lists else "the case counts list calls of Kueue's cache"
        yield (
            Outcome(case.name, rule=rule) if rule else judge(case.name, lambda c=case: failure(c))
        )


# Extended resources.


def run_names(path):
    def failure(case):
        return difference(is_extended_resource(case.input["resource"]), case.want["want"], "answer")

    yield from run_table(path, failure)


def run_selected(path):
    def failure(case):
        classes = converted(case.input["items"], DeviceClass)
        return difference(selected_class(classes).metadata.name, case.want["want"], "class")

    yield from run_table(path, failure)


def run_needs(path):
    """Whether devices decide about a workload at all."""

    def failure(case):
        columns = case.input
        workload = decode(columns["workload"], Workload)
        backed = columns["cachedResources"] if columns["erGate"] else {}
        specs = [each.template.spec for each in workload.spec.pod_sets]
        if columns["draGate"]:
            asks = any(asks_for_devices(spec, backed.__contains__) for spec in specs)
        else:  # claims are refused
            refused = case.gates.get("KueueDRARejectWorkloadsWhenDRADisabled", True)
            asks = refused and any(spec.resource_claims for spec in specs)
        found = asks and not is_on_hold(workload)
        return difference(found, case.want["want"], "answer")

    yield from run_table(path, failure)


def run_extended(path):
    def failure(case):
        columns, want = case.input, case.want
        classes = converted(columns["deviceClasses"], DeviceClass)
        counter = DeviceCounter(
            rules=ChargeRules(
                mappings_of(columns["mapperMappings"]),
                DeviceGates(
                    partitionable=columns["enablePD"],
                    consumable=case.gates.get("KueueDRAIntegrationConsumableCapacity", False),
                ),
            ),
            classes={each.metadata.name: each for each in classes}.get,
            backing=lambda name: [c for c in classes if c.spec.extended_resource_name == name],
        )
        workload, errors = decode(columns["workload"], Workload), []
        amounts, replaced = {}, {}
        for index, each in enumerate(workload.spec.pod_sets):
            where = f"spec.podSets[{index}].template.spec"
            try:
                charge = counter.of_extended_resources(each.template.spec, where)
            except DeviceCountError as error:
                errors += error.errors
                continue
            if charge.amounts:
                amounts[each.name] = charge.amounts
            if charge.replaced:
                replaced[each.name] = sorted(charge.replaced)
        if errors or want["wantErr"]:
            return errors_differ(errors, want["wantErr"])
        wanted = {
            name: {n: parse_quantity(text).value() for n, text in each.items()}
            for name, each in (want["want"] or {}).items()
        }
        return difference(amounts, wanted, "amounts") or difference(
            replaced, {n: sorted(e) for n, e in (want["wantReplaced"] or {}).items()}, "replaced"
        )

    yield from run_table(path, failure)


# Claims.

BOTH = {"claims_test.go:112": ("claim-tmpl-1",)}
"""Go closures that keep templates of the workload beside those that come with the case."""


def run_claims(path):
    """The claims of a workload. A Go closure names the templates; those of the case mostly."""
    fixtures = read_table(path)["fixtures"]

    def failure(case):
        added = [each for each in case.input["extraObjects"] or () if each.get("kind")]
        named = [e["metadata"]["name"] for e in added if e["kind"] == "ResourceClaimTemplate"]
        closure = (case.input["modifyWL"] or {}).get("at", "")
        names = [*BOTH.get(closure, ()), *named]
        if not named and any(word in case.name.lower() for word in ("missing", "not found")):
            names = ["missing"]
        body = json.loads(json.dumps(fixtures["wl"]))
        if names:
            body["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = [
                {"name": f"req-{i}", "resourceClaimTemplateName": n} for i, n in enumerate(names)
            ]
        counter = _counter(case, [fixtures["tmpl"], *added])
        workload, amounts = decode(body, Workload), {}
        try:
            for index, each in enumerate(workload.spec.pod_sets):
                where = f"spec.podSets[{index}].template.spec"
                spec, namespace = each.template.spec, workload.metadata.namespace
                found = counter.of_templates(spec, namespace, where, each.name)
                if found:
                    amounts[each.name] = found
        except DeviceCountError as error:
            return errors_differ(error.errors, case.want["wantErr"])
        wanted = {
            name: {n: parse_quantity(text).value() for n, text in each.items()}
            for name, each in (case.want["want"] or {}).items()
        }
        return errors_differ((), case.want["wantErr"]) or difference(amounts, wanted, "amounts")

    yield from run_table(path, failure)


def _counter(case, bodies):
    def of(kind, into):
        return converted([each for each in bodies if each["kind"] == kind], into)

    mapper = (case.data["observed"].get("testMapper") or {}).get("deviceClassToResource") or {}
    classes = {each.metadata.name: each for each in of("DeviceClass", DeviceClass)}
    templates = of("ResourceClaimTemplate", ResourceClaimTemplate)
    return DeviceCounter(
        rules=ChargeRules(DeviceMappings(mapper), DeviceGates()),
        classes=classes.get,
        templates={each.metadata.key: each for each in templates}.get,
        inventory=Inventory(of("ResourceSlice", ResourceSlice)),
    )


def run_sums(path):
    """Sums of counts that are larger than any number of devices."""

    def failure(case):
        requests = [
            each for each in case.input["requests"] if each["exactly"].get("deviceClassName")
        ]
        names = {each["exactly"]["deviceClassName"] for each in requests}
        rules = ChargeRules(DeviceMappings({name: name for name in names}))
        spec = convert({"devices": {"requests": requests}}, ClaimSpec)
        total = ClaimCount(rules, lambda _name: None, Inventory()).total(spec)
        return difference(sum(total.values()), case.want["wantCount"], "count")

    yield from run_table(path, failure)


GPU = "gpu.example.com"


def run_selector_errors(path):
    """Errors of selectors. What each case does is in a Go closure; its name says it."""

    def failure(case):
        broken = any(word in case.name for word in ("compil", "invalid"))
        of_request = broken and "request" in case.name
        of_device_class = broken and "DeviceClass" in case.name
        expression = "device.attributes['x'].type == 'a'"
        if broken and not (of_request or of_device_class):
            expression = "device.driver =="
        selectors = [{"cel": {"expression": "device.driver ==" if broken else "true"}}]
        of_class = {"metadata": {"name": "class"}}
        of_class["spec"] = {"selectors": selectors if of_device_class else []}
        classes = {} if "lookup" in case.name else {"class": convert(of_class, DeviceClass)}
        source = {
            "name": "gpus",
            "deviceClassNames": ["class"],
            "sources": [
                {
                    "counter": {
                        "name": "memory",
                        "driver": GPU,
                        "deviceSelector": {"cel": {"expression": expression}},
                    }
                }
            ],
        }
        unset = {"name": "gpu-0", "attributes": {"type": {}}}
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        slices = converted(
            [{"spec": {"driver": GPU, "pool": pool, "devices": [unset]}}], ResourceSlice
        )
        asked = {"allocationMode": "ExactCount", "count": 1, "deviceClassName": "class"}
        if "lookup" in case.name or of_request:
            asked["selectors"] = selectors
        skipped = {"exactly": {"adminAccess": True, "deviceClassName": "class"}}
        spec = {"devices": {"requests": [skipped, {"exactly": asked}]}}
        counting = ClaimCount(ChargeRules(mappings_of([source])), classes.get, Inventory(slices))
        base = "spec.podSets[0].template.spec.resourceClaims[0]."
        try:
            counting.total(convert(spec, ClaimSpec))
        except DeviceCountError as error:
            (found,) = error.errors
            detail = case.want["wantDetail"]
            place = difference(base + found.path, case.want["wantField"], "field")
            return place or ("" if detail in found.message else found.message)
        return "nothing is refused"

    yield from run_table(path, failure)
