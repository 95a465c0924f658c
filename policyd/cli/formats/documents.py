"""The objects and policies in the files that commands are given."""

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

import click

from policyd.api.meta import Json
from policyd.cli.formats.files import texts
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import exit_code, show_all
from policyd.clock import SystemClock, cpu_limit
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import Loaded, gather, load_document, load_policies, stood_in_for
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.plain_yaml import NotPlainError
from policyd.engine.documents.reading import (
    Document,
    LazyItems,
    each_document,
    each_kept,
    is_blank,
    read_documents,
)
from policyd.engine.export.refused import refused, refused_annotations
from policyd.engine.model.background import BackgroundPolicy
from policyd.engine.model.bindings import check_bindings, check_exceptions
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.dialects import Dialect, Volatile
from policyd.program import uncollected


def read_objects(paths: Sequence[str]) -> tuple[list[Document], list[Finding]]:
    """Read the documents of all files, and say which cannot be read.

    Raises:
        click.UsageError: If all are blank: the command that was to write them may have failed.
    """
    return _read(paths, each_document)


_Made = TypeVar("_Made")


def with_many_objects(
    paths: Sequence[str], use: Callable[["ManyObjects"], _Made]
) -> tuple[_Made, list[Finding]]:
    """Return what is made of the documents of all files, and say which cannot be read.

    What is in large files is decoded as it is used. If one then turns out to be written in another
    way than programs do, all is read as `read_objects` does, and used from the start.

    Args:
        paths: The files.
        use: Goes through all documents.

    Raises:
        click.UsageError: If all are blank.
    """
    read: list[Document | LazyItems]
    read, findings = _read(paths, each_kept)
    with suppress(NotPlainError):
        return use(ManyObjects(read)), findings
    documents: list[Document] = []
    for each in read:
        if isinstance(each, Document):
            documents.append(each)
            continue
        again, unreadable = read_documents(each.content, each.source)
        documents += again
        findings += unreadable
    return use(ManyObjects(documents)), findings


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
        """Yield the value of each, and a function that returns the document.

        Raises:
            NotPlainError: If all are to be read again.
        """
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


def load_valid(paths: Sequence[str]) -> Loaded:
    """Load all files as `load` does, and end the command if a policy is invalid."""
    loaded = load(paths)
    end_if_invalid(loaded, paths)
    return loaded


def end_if_invalid(loaded: Loaded, paths: Sequence[str]) -> None:
    """End a command whose answer would not be that of the policies, as some are invalid.

    Raises:
        click.UsageError: If there is no policy.
    """
    errors = [finding for finding in loaded.findings if finding.severity == "error"]
    if code := exit_code(errors):
        show_all(errors)
        sys.exit(code)
    if not loaded.all_policies:
        raise click.UsageError(f"no policy in {', '.join(paths)}")


def _load_one(document: Document, dialect: Dialect) -> Loaded:
    return load_document(document, dialect, cpu_limit())


def _load_stored(document: Document, dialect: Dialect) -> Loaded:
    loaded = _load_one(document, dialect)
    of_values = chain.from_iterable(map(refused_annotations, loaded.policies))
    wrong = (*refused(document), *of_values)
    if not wrong:
        return loaded
    found = replace(
        loaded, policies=(), bindings=(), background=(), findings=(*loaded.findings, *wrong)
    )
    return stood_in_for(found, document, dialect)


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
    bindings = (*loaded.bindings, *loaded.binding_placeholders)
    findings += check_bindings(policies.values(), bindings, loaded.faulty)
    loaded = replace(
        loaded, policies=tuple(policies.values()), background=tuple(background.values())
    )
    findings += check_exceptions(loaded.all_policies, loaded.exceptions, loaded.faulty)
    return replace(loaded, findings=tuple(findings))


def _twice(policy: CompiledPolicy, other: CompiledPolicy) -> Finding:
    message = f"policy `{policy.name}` is also in {other.place}"
    return Finding(source=policy.place, message=message, hint="names must differ")
