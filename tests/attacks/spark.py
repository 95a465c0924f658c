"""Executors beyond quota: every way to write their number into a SparkApplication.

What the operator makes of an application, and Spark of that, is modelled here: the arguments of
`spark-submit`, its parser, and the number of executors that the driver begins with or gets to.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from policyd.engine.objects.pods import count_pods
from policyd.jobs.kinds.spark_application import ELASTIC_EXECUTORS, SPARK_APPLICATION
from policyd.jobs.rules.validation import validate_job
from tests.attacks.figures import Figures

Object = dict[str, Any]

DYNAMIC = "spark.dynamicAllocation"
OF_SPARK, WITHOUT_END = 2, 2**31 - 1
NUMBERS = ("64", "+64", " 64", "0" * 20 + "64", "٦٤", "64.0", "many", "")
KEYS = (
    "spark.executor.instances",
    *(f"{DYNAMIC}.{name}Executors" for name in ("initial", "min", "max")),
)


def executors() -> Figures:
    """Write more executors into each place: the queue counts them, or refuses the application."""
    tried, through = 0, list[str]()
    for what, body in _applications():
        tried += 1
        made = _made(body["spec"])
        if made is None or validate_job(
            body, group=SPARK_APPLICATION.group, kind="SparkApplication"
        ):
            continue
        job = msgspec.convert(body, SPARK_APPLICATION.type)
        counted = SPARK_APPLICATION.pod_sets(job)[1].count
        if made > counted:
            through.append(f"{what}: {made} executors, {counted} in the queue")
        if made > count_pods(body) - 1:
            through.append(f"{what}: {made} executors, {count_pods(body) - 1} for policies")
    return Figures(tried=tried, bypasses=len(through), faults=tuple(through))


def _applications() -> Iterator[tuple[str, Object]]:
    fields: tuple[Object, ...] = ({}, {"instances": 1})
    bounds: tuple[Object, ...] = (
        {},
        {"enabled": False, "maxExecutors": 2},
        {"enabled": True, "maxExecutors": 2},
        *({"enabled": True, "maxExecutors": 2, f"{n}Executors": 64} for n in ("initial", "min")),
        {"enabled": True, "maxExecutors": 2, "initialExecutors": 1, "minExecutors": 1},
    )
    for executor, bound, conf in product(fields, bounds, _settings()):
        yield f"{executor} {bound} {conf}", _application(executor, bound, conf)
    for program, arguments in _programs():
        spec = {"mainApplicationFile": program} if program is not None else {}
        body = _application({"instances": 1}, {}, {})
        yield (
            f"{program} {arguments}",
            {
                **body,
                "spec": {**body["spec"], **spec, "arguments": arguments},
            },
        )


def _settings() -> Iterator[dict[str, str]]:
    yield {}
    yield from ({key: number} for key, number in product(KEYS, NUMBERS))
    for key in KEYS:
        yield {f"{key}=64": ""}
        yield {f"{key}=64 #": "x"}
    for text in ("true", "TRUE", " true ", "false", "yes"):
        yield {f"{DYNAMIC}.enabled": text}
        yield {f"{DYNAMIC}.enabled": text, f"{DYNAMIC}.maxExecutors": "2", KEYS[1]: "64"}
    yield {f"{DYNAMIC}.enabled=true": "", KEYS[1]: "64"}


def _programs() -> Iterator[tuple[str | None, list[str]]]:
    more = [f"{KEYS[0]}=64", "local:///main.py"]
    for option in ("--conf", "-c"):
        yield option, more
        yield None, [option, *more]
    yield f"--conf={more[0]}", more[1:]
    yield "--num-executors", ["64", more[1]]
    yield "--verbose", ["--conf", *more]
    yield more[1], ["--conf", *more]


def _application(executor: Object, bounds: Object, conf: dict[str, str]) -> Object:
    spec = {"mode": "cluster", "driver": {}, "executor": executor, "sparkConf": conf}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    annotations = {ELASTIC_EXECUTORS: "true"}
    metadata = {"name": "s", "namespace": "ns", "labels": labels, "annotations": annotations}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": metadata,
        "spec": {**spec, "dynamicAllocation": bounds} if bounds else spec,
    }


def _made(spec: Object) -> int | None:
    """Return the executors that Spark makes of an application; None if it fails at it."""
    conf = _parsed([*_arguments(spec)])
    try:
        given, first, least, most = (_number(conf[key]) if key in conf else None for key in KEYS)
        dynamic = _flag(conf.get(f"{DYNAMIC}.enabled", "false"))
    except ValueError:
        return None
    if not dynamic:
        return OF_SPARK if given is None else given
    most = WITHOUT_END if most is None else most
    if (least or 0) > most:
        return None
    return max(given or 0, first or 0, least or 0, most)


def _arguments(spec: Object) -> Iterator[str]:
    """Yield what the operator starts `spark-submit` with, as far as it concerns executors."""
    settings = dict[str, object]()
    for key, text in spec["sparkConf"].items():
        yield from ("--conf", f"{key}={text}")
    if "instances" in spec["executor"]:
        settings[KEYS[0]] = spec["executor"]["instances"]
    bounds = spec.get("dynamicAllocation", {})
    if bounds.get("enabled"):
        settings[f"{DYNAMIC}.enabled"] = "true"
        settings |= {
            f"{DYNAMIC}.{name}": value for name, value in bounds.items() if name != "enabled"
        }
    for key, value in settings.items():
        yield from ("--conf", f"{key}={value}")
    if "mainApplicationFile" in spec:
        yield spec["mainApplicationFile"]
    yield from spec.get("arguments", ())


SWITCHES = frozenset({"--verbose", "-v", "--supervise"})
OPTIONS = {"--conf": "", "-c": "", "--num-executors": f"{KEYS[0]}="}


def _parsed(arguments: list[str]) -> dict[str, str]:
    """Return the settings in arguments, as the parser of `spark-submit` reads them."""
    conf, rest = dict[str, str](), iter(arguments)
    for argument in rest:
        joined = re.fullmatch("(--[^=]+)=(.+)", argument)
        option = joined[1] if joined else argument
        if option in OPTIONS:
            text = joined[2] if joined else next(rest, "")
            key, _, value = (
                text.partition("=") if not OPTIONS[option] else (OPTIONS[option], "", text)
            )
            conf[key] = value
        elif option not in SWITCHES:
            break  # the program
    return conf


def _number(text: str) -> int:
    """Read a number as Java does."""
    if not re.fullmatch(r"[+-]?\d+", text.strip()):
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.strip().lower() == "true"


ATTACKS = {"executors of a SparkApplication": executors}
