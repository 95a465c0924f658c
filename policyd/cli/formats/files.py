"""The files that commands are given: paths, folders, standard input."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NoReturn, TypeVar

import click

from policyd.api.meta import Json
from policyd.cli.formats.progress import progress
from policyd.clock import SystemClock, cpu_limit
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import Loaded, gather, load_document, load_policies
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document, LazyItems, each_document, each_kept, is_blank
from policyd.engine.export.refused import refused, refused_annotations
from policyd.engine.model.background import BackgroundPolicy
from policyd.engine.model.bindings import check_bindings, check_exceptions
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.dialects import Dialect, Volatile
from policyd.errors import system_reason
from policyd.policy_files import FileError, policy_files, read_file
from policyd.program import uncollected
from policyd.standard_input import STANDARD_INPUT, STANDARD_INPUT_NAME, standard_input


def texts(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file that `paths` mean, cases left out of folders.

    Raises:
        click.UsageError: If one cannot be read.
    """
    for path in paths:
        if path == STANDARD_INPUT:
            yield STANDARD_INPUT_NAME, standard_input()
            continue
        for file in policy_files([Path(path)], _note_left_out):
            yield str(file), content(file)


def text_of(path: str) -> tuple[str, bytes]:
    """Return the name and content of a file, or of standard input.

    Raises:
        click.UsageError: If it cannot be read.
    """
    if path == STANDARD_INPUT:
        return STANDARD_INPUT_NAME, standard_input()
    return path, content(Path(path))


def once(paths: Iterable[str | None]) -> None:
    """Check that standard input is named once at most.

    Raises:
        click.UsageError: If it is named twice.
    """
    if list(paths).count(STANDARD_INPUT) > 1:
        raise click.UsageError("standard input can be read only once")


def _note_left_out(file: Path, why: str) -> None:
    click.echo(f"warning: {file} is not read: {why}", err=True)


def content(file: Path) -> bytes:
    """Read a file.

    Raises:
        click.UsageError: If it cannot be read.
    """
    try:
        return read_file(file, pipes=True)
    except FileError as error:
        raise click.UsageError(f"{error}: {error.hint}") from error
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {system_reason(error)}") from error


def cannot_read(error: OSError) -> NoReturn:
    """Say that a folder in a folder cannot be read: what is in it may be what matters.

    Raises:
        click.UsageError: Always.
    """
    raise click.UsageError(f"cannot read {error.filename}: {system_reason(error)}") from error


def read_objects(paths: Sequence[str]) -> tuple[list[Document], list[Finding]]:
    """Read the documents of all files, and say which cannot be read.

    Raises:
        click.UsageError: If all are blank: the command that was to write them may have failed.
    """
    return _read(paths, each_document)


def read_many_objects(paths: Sequence[str]) -> tuple["ManyObjects", list[Finding]]:
    """Read the documents of all files as `read_objects` does, for a command that uses each once.

    Raises:
        click.UsageError: If all are blank.
    """
    read: list[Document | LazyItems]
    read, findings = _read(paths, each_kept)
    return ManyObjects(read), findings


class ManyObjects:
    """Documents, of which those of large files are kept as texts and decoded when they are used."""

    def __init__(self, read: Sequence[Document | LazyItems]) -> None:
        """Take them in their order."""
        self._read = read
        self._count = sum(
            1 if isinstance(each, Document) else len(each.items.kinds) for each in read
        )

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def __iter__(self) -> Iterator[tuple[Json, Callable[[], Document]]]:
        """Yield the value of each, and a function that returns the document."""
        for read in self._read:
            if isinstance(read, Document):
                yield read.value, partial(_same, read)
                continue
            for index in range(len(read.items.kinds)):
                yield read.items.value(index), partial(read.document, index)

    def of_kinds(self, kinds: Container[str]) -> Iterator[Json]:
        """Yield the objects of some kinds, and perhaps others."""
        for read in self._read:
            if isinstance(read, Document):
                yield read.value
                continue
            for index, kind in enumerate(read.items.kinds):
                if kind in kinds:
                    yield read.items.value(index)


def _same(document: Document) -> Document:
    return document


_Read = TypeVar("_Read")


def _read(
    paths: Sequence[str], each: Callable[[bytes, str], Iterable[_Read | Finding]]
) -> tuple[list[_Read], list[Finding]]:
    documents: list[_Read] = []
    findings: list[Finding] = []
    blank = bool(paths)

    def each_object() -> Iterator[_Read | Finding]:
        nonlocal blank
        for name, text in texts(paths):
            number = len(documents) + len(findings)
            yield from each(text, name)
            blank = blank and number == len(documents) + len(findings) and is_blank(text)

    with uncollected():
        for read in progress(each_object(), "reading"):
            if isinstance(read, Finding):
                findings.append(read)
            else:
                documents.append(read)
    if blank:
        raise click.UsageError(f"no object in {', '.join(paths)}")
    return documents, findings


DIALECT = dialect_of(volatile=Volatile(now=lambda: int(SystemClock().now() * 1e9)))
"""The default version of Kubernetes, every format, and the machine's clock for those that ask."""


def load(paths: Sequence[str], dialect: Dialect = DIALECT, *, stored: bool = True) -> Loaded:
    """Load all files; of two policies with one name the later is used, which is a finding.

    Args:
        paths: Files and folders.
        dialect: The versions and formats that policies are loaded with.
        stored: Whether a policy that the API server refuses to store is an error.
    """
    return load_texts(texts(paths), dialect, stored=stored)


def load_texts(
    named: Iterable[tuple[str, bytes]], dialect: Dialect = DIALECT, *, stored: bool = True
) -> Loaded:
    """Load the contents of files, with their names, as `load` does."""
    load_one = _load_stored if stored else _load_one
    parts = (load_policies(text, name, dialect, load_one) for name, text in named)
    return _checked(gather(progress(parts, "loading")))


def _load_one(document: Document, dialect: Dialect) -> Loaded:
    return load_document(document, dialect, cpu_limit())


def _load_stored(document: Document, dialect: Dialect) -> Loaded:
    loaded = _load_one(document, dialect)
    of_values = chain.from_iterable(map(refused_annotations, loaded.policies))
    wrong = (*refused(document), *of_values)
    if not wrong:
        return loaded
    return replace(loaded, policies=(), bindings=(), findings=(*loaded.findings, *wrong))


def load_documents(
    documents: Iterable[Document],
    unreadable: Iterable[Finding],
    dialect: Dialect,
    *,
    stored: bool = True,
) -> Loaded:
    """Load documents; of two policies with one name the later is used, which is a finding.

    Args:
        documents: The documents.
        unreadable: Findings about others.
        dialect: The versions and formats that policies are loaded with.
        stored: Whether a policy that the API server refuses to store is an error.
    """
    load_one = _load_stored if stored else _load_one
    parts = (load_one(document, dialect) for document in documents)
    return _checked(gather([Loaded(findings=tuple(unreadable)), *progress(parts, "loading")]))


def _checked(loaded: Loaded) -> Loaded:
    policies: dict[str, CompiledPolicy] = {}
    findings = list(loaded.findings)
    for policy in loaded.policies:
        if policy.id in policies:
            findings.append(_twice(policy, policies[policy.id]))
        policies[policy.id] = policy
    background: dict[str, BackgroundPolicy] = {}
    for acting in loaded.background:
        if acting.id in background:
            findings.append(_twice(acting.policy, background[acting.id].policy))
        background[acting.id] = acting
    findings += check_bindings(policies.values(), loaded.bindings)
    loaded = replace(
        loaded, policies=tuple(policies.values()), background=tuple(background.values())
    )
    findings += check_exceptions(loaded.all_policies, loaded.exceptions)
    return replace(loaded, findings=tuple(findings))


def _twice(policy: CompiledPolicy, other: CompiledPolicy) -> Finding:
    message = f"policy `{policy.name}` is also in {other.place}"
    return Finding(source=policy.place, message=message, hint="names must differ")
