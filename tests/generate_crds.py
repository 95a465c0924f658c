"""Write the CustomResourceDefinitions of the chart: `python -m tests.generate_crds`."""

from pathlib import Path

import yaml

from policyd.api.crd import KINDS, definition
from policyd.field_descriptions import field_descriptions

CHART = Path(__file__).parents[1] / "charts" / "policyd"
FOLDER = CHART / "crds"
FULL_FOLDER = CHART / "full-crds"
HEADER = "# Made from policyd/api by `python -m tests.generate_crds`. Do not edit.\n"


class Dumper(yaml.SafeDumper):
    """Writes equal values in full, without aliases."""

    def ignore_aliases(self, data):
        return True


def documents(*, full=False):
    """The text of each file, by name; of the full ones, of those that differ from the slim ones."""
    made = {}
    for kind in KINDS:
        slim, chosen = (
            definition(kind, notes=field_descriptions, full=each) for each in (False, full)
        )
        if not full or chosen != slim:
            text = yaml.dump(chosen, Dumper=Dumper, sort_keys=False, width=110)
            made[f"{kind.group}_{kind.plural}.yaml"] = HEADER + text
    return made


def main():
    for folder, full in ((FOLDER, False), (FULL_FOLDER, True)):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.yaml"):
            old.unlink()
        for name, text in documents(full=full).items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
