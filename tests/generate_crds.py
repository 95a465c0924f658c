"""Write the CustomResourceDefinitions of the chart: `python -m tests.generate_crds`."""

from pathlib import Path

import yaml

from policyd.api.crd import KINDS, definition
from policyd.field_notes import field_notes

CHART = Path(__file__).parents[1] / "charts" / "policyd"
FOLDER = CHART / "crds"
FULL_FOLDER = CHART / "full-crds"
HEADER = "# Made from policyd/api by `python -m tests.generate_crds`. Do not edit.\n"


class Dumper(yaml.SafeDumper):
    """Writes equal values in full, without aliases."""

    def ignore_aliases(self, data):
        return True


def documents(*, full=False):
    """The text of each file, by name."""
    return {
        f"{kind.group}_{kind.plural}.yaml": HEADER
        + yaml.dump(
            definition(kind, notes=field_notes, full=full),
            Dumper=Dumper,
            sort_keys=False,
            width=110,
        )
        for kind in KINDS
    }


def main():
    for folder, full in ((FOLDER, False), (FULL_FOLDER, True)):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.yaml"):
            old.unlink()
        for name, text in documents(full=full).items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
