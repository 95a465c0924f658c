"""Files with small errors, for each command: none may end in a traceback.

`python -m tests.cli.mutations 10000` runs each command on that many files; the tests run a few.
"""

import gc
import io
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.formats import documents
from policyd.engine.compile.load import Loaded
from tests.cli.given import GIVEN, LIBRARY

CODES = frozenset({0, 1, 2})
"""The exit codes of commands that end by themselves."""

PIECES = (
    *(
        "",
        " ",
        "\n",
        ":",
        ": ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        '"',
        "#",
        "&a ",
        "*a",
        "!!x ",
        "|",
        "\t",
    ),
    *(
        "null",
        "true",
        "0",
        "-1",
        "1e400",
        "99999999999999999999",
        "NaN",
        ".inf",
        "[]",
        "{}",
        "[[]]",
        "é",
    ),
    *(
        "\x00",
        "\ud7ff",
        "---\n",
        "...",
        "<<: ",
        "kind: List\nitems: ",
        "2026-01-01",
        "1h",
        "apiVersion",
        "a.b",
    ),
)
VALUES = (
    None,
    True,
    0,
    -1,
    2**63,
    1.5,
    "",
    "a",
    "1h",
    "-5Gi",
    "1e400",
    "9" * 400,
    [],
    {},
    [None],
    [[1]],
    {"a": None},
    ["a"],
    [{}],
)


def mutated(text: str, rng: random.Random) -> bytes:
    """Return a text with a few small changes."""
    characters = text
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(characters) + 1)
        end = at + rng.choice((0, 0, 1, 3, 20))
        characters = characters[:at] + rng.choice(PIECES) + characters[end:]
    return characters.encode(errors="surrogatepass")


def misshapen(document: object, rng: random.Random) -> bytes:
    """Return JSON in which some values have another type."""
    copy = json.loads(json.dumps(document))
    places = list(_places(copy))
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places)
        container[key] = rng.choice(VALUES)
    return json.dumps(copy).encode()


def _places(value: object) -> Iterator[tuple[dict | list, object]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(pairs):
        yield value, key
        if isinstance(each, dict | list):
            yield from _places(each)


def attempts(name: str, number: int, seed: int) -> Iterator[bytes]:
    """Yield files for a command, the same for the same seed."""
    rng = random.Random(f"{name} {seed}")
    texts, documents = GIVEN[name].texts, GIVEN[name].documents
    for index in range(number):
        if index % 2:
            yield mutated(rng.choice(texts), rng)
        else:
            yield misshapen(rng.choice(documents), rng)


def wrong(name: str, content: bytes, folder: Path) -> str | None:
    """Run a command on a file; return why it ended wrongly, or None."""
    given = GIVEN[name]
    file = folder / given.file
    file.write_bytes(content)
    with redirect_stderr(io.StringIO()):
        result = CliRunner().invoke(main, given.arguments(file))
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return f"{type(error).__name__}: {error}"
    return None if result.exit_code in CODES else f"exit code {result.exit_code}"


def try_all(
    name: str, folder: Path, number: int, seed: int = 0, write_line: Callable[[str], None] = print
) -> int:
    """Run a command on many files; return how many ended wrongly, and print each."""
    failed = 0
    with library_loaded_once():
        for index, content in enumerate(attempts(name, number, seed)):
            if index % 100 == 99:  # commands keep what they read out of garbage collection
                gc.unfreeze()
                gc.collect()
            why = wrong(name, content, folder)
            if why is not None:
                failed += 1
                write_line(f"{name}: {why}: {content!r}")
    return failed


@contextmanager
def library_loaded_once() -> Iterator[None]:
    """Compile each file of the library once: this is 97 % of the time of `apply` and `report`."""
    load, loaded = documents.load_policies, dict[tuple[str, str], Loaded]()

    def load_again(text: str, source: str, *rest: object) -> Loaded:
        if not Path(source).is_relative_to(LIBRARY):
            return load(text, source, *rest)
        if (source, text) not in loaded:
            loaded[source, text] = load(text, source, *rest)
        return loaded[source, text]

    with patch.object(documents, "load_policies", load_again):
        yield


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    chosen = sys.argv[2:] or list(GIVEN)
    with TemporaryDirectory() as made:
        failures = {name: try_all(name, Path(made), count) for name in chosen}
    print(failures)
    sys.exit(1 if any(failures.values()) else 0)
