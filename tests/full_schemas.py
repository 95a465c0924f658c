"""The schemas that say all that must hold: our full ones, and Kueue's own where they are at hand.

Kueue's are no part of this repository. They are read from the folder that `POLICYD_KUEUE_CRDS`
names, or from `shared/cases/crds/kueue` beside this folder.
"""

import os
from functools import cache
from pathlib import Path

import msgspec
import yaml

from policyd.admission.queues import QueueAdmission
from policyd.api.admission import parse_review
from policyd.api.crd import KINDS, definition
from policyd.local.apiserver.custom.checking import check_custom
from policyd.local.apiserver.custom.rules import check_rules
from policyd.local.apiserver.custom.schema import fill_in
from tests.webhooks.reviews import review

KUEUE = Path(
    os.environ.get("POLICYD_KUEUE_CRDS", "")
    or Path(__file__).parents[2] / "shared" / "cases" / "crds" / "kueue"
)
WHY_NOT = f"Kueue's own definitions are not in {KUEUE}; POLICYD_KUEUE_CRDS names another folder"


@cache
def our_schemas(*, full=True):
    """Our full schemas by plural name, or our slim ones."""
    made = {kind.plural: definition(kind, full=full) for kind in KINDS}
    return {plural: _schema(each) for plural, each in made.items()}


@cache
def kueue_schemas():
    """Kueue's schemas, by plural name; none if they are not at hand."""
    found = {each["spec"]["names"]["plural"]: each for each in kueue_definitions()}
    return {plural: _schema(each) for plural, each in found.items()}


def kueue_definitions():
    """Kueue's definitions as they are published, v1beta2 alone: nothing converts here."""
    for file in sorted(KUEUE.glob("*.yaml")):
        made = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        made["spec"]["versions"] = [v for v in made["spec"]["versions"] if v["storage"]]
        yield made


def _schema(made):
    return made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def refusals(new, old):
    """Say what the webhooks have against an object that is created or changed."""
    operation = "UPDATE" if old else "CREATE"
    body = review(new, operation=operation, old=old, resource=f"{new['kind'].lower()}s")
    return QueueAdmission().check(parse_review(body)).denials


def errors_of(new, old, schema):
    """Say what an API server with this schema has against an object, given what it was.

    What was wrong before and is as it was does not count, as in an API server that ratchets.
    """
    new, old = (msgspec.json.decode(msgspec.json.encode(each)) for each in (new, old))
    fill_in(new, schema)
    before = set()
    if old is not None:
        fill_in(old, schema)
        before = {
            str(error) for error in (*check_custom(old, schema), *check_rules(old, None, schema))
        }
    found = [str(error) for error in check_custom(new, schema)]
    found += [str(error) for error in check_rules(new, old, schema)]
    return [error for error in found if error not in before]
