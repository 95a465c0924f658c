"""Markdown pages, taken apart into the blocks that a test can run."""

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
KUEUE = "Kueue"
"""What the fence of a block says that is run on a cluster with Kueue, by the test of takeovers."""
FENCE = re.compile(r"^```(\w*) *([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what else its fence says, its text, and where it begins."""

    page: Path
    line: int
    language: str
    remark: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the output shown below it."""

    line: str
    shown: str
    place: str


def pages() -> list[Path]:
    """Every page a reader may open: the top level's, the documentation's, the policies'."""
    found = [
        *PROJECT.glob("*.md"),
        *PROJECT.glob("docs/**/*.md"),
        *PROJECT.glob("policies/**/*.md"),
    ]
    return sorted(found)


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, *match.groups())
        for match in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[Command]:
    """Split a console block at its prompts. A command may go on behind a backslash or heredoc."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Command(*split(part), block.place) for part in parts]


def split(part: str) -> tuple[str, str]:
    """Tell a command from the output below it."""
    lines = part.splitlines()
    end = 1
    while lines[end - 1].endswith("\\"):
        end += 1
    heredoc = re.search(r"<<'?(\w+)'?", lines[0])
    if heredoc:
        end = lines.index(heredoc[1]) + 1
    return "\n".join(lines[:end]), "\n".join(lines[end:]).strip()


def matches(shown: str, printed: str) -> bool:
    """Tell whether the output is as shown, where `…` stands for anything, and columns may move."""
    pattern = ".*?".join(re.escape(part.strip()) for part in shown.split("…"))
    pattern = re.sub(r"(\\ )+", r"[ ]+", pattern)
    printed = "\n".join(line.rstrip() for line in printed.splitlines()).strip()
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings are linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
