"""Where the embedded server differs from the real one, knowingly, and why."""

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatch

GO_TEXT = "Go's own text of a value or of a parser's error; ours says the same in JSON"
NO_NETWORK = "there is no network here, so nothing gives out addresses"
NO_PROSE = "the table of kinds has structure only, no prose"
AT_ONCE = "definitions are there at once here, and a controller's business there"
LONGER = "ours says more than the real one"
UNCHECKED = "nothing that policyd or its users write gets there: not checked here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A part of texts that is not compared: what the pattern's first group leaves out."""

    pattern: re.Pattern[str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A part of answers that is not compared.

    `story` and `asked` are patterns of stories' ids and of requests, `body` is contained in what
    was sent. `path` is where in the answer, names divided by `/` and `*` for every item of a list;
    or `warnings`; or empty for all of it, whatever its code. One that is not `certain` depends on
    which of two things happens first.
    """

    story: str
    path: str
    reason: str
    asked: str = "*"
    body: str = ""
    certain: bool = True


PHRASES = (
    Phrase(
        pattern=re.compile(r"(?s)(if it was previously negative\)).*"),
        reason=f"{GO_TEXT}: the real one shows a diff of Go structs",
    ),
    Phrase(
        pattern=re.compile(r"(Invalid value: )[\[{n].*(?=: (field is immutable|no additions))"),
        reason=GO_TEXT,
    ),
    Phrase(
        pattern=re.compile(r"(Unsupported value: ){.*}(?=:)"),
        reason=GO_TEXT,
    ),
    Phrase(
        pattern=re.compile(r'(?s)((?:^|patch: )Invalid value: )"(?:{|\[|map\[).*'),
        reason="the real one quotes the patched object for some patches and the patch for others",
    ),
    Phrase(
        pattern=re.compile(r"(?s)(server rejected our request due to an error in our request).*"),
        reason=LONGER,
    ),
    Phrase(
        pattern=re.compile(r"(parsing time \S+ as ).*"),
        reason=GO_TEXT,
    ),
    Phrase(
        pattern=re.compile(r"()StorageError: invalid object, .*AdditionalErrorMsg: "),
        reason="it names keys of etcd",
    ),
)
"""Applied to every text."""

DIFFERENCES: tuple[Difference, ...] = (
    Difference(story="*", path="columnDefinitions/*/description", reason=NO_PROSE),
    Difference(
        story="pods-mistakes-in-names",
        path="",
        body='"name": null',
        reason="what has no name is refused at once here, as everything else goes by the name",
    ),
    Difference(
        story="pods-mistakes-in-resources",
        path="warnings",
        body='"memory": "',
        reason="fractions of bytes are taken without a warning",
    ),
    *(
        Difference(story=story, path="", body=body, reason=f"{what}: {UNCHECKED}")
        for story, body, what in (
            ("pods-mistakes-in-metadata", "resourceVersion", "a version while creating on trial"),
            ("pods-mistakes-in-resources", "claims", "dynamic resource allocation"),
            ("pods-mistakes-in-spec", "imagePullSecrets", "nothing pulls images"),
            ("pods-mistakes-in-spec", "overhead", "runtime classes"),
            ("pods-mistakes-in-spec", "runtimeClassName", "runtime classes"),
            ("jobs-mistakes", '"name": "a.b"', "a warning about names with dots"),
        )
    ),
    Difference(
        story="pods-subresources",
        path="",
        asked="GET */pods/web/log",
        reason="the real server asks the node for the log, and there is none",
    ),
    *(
        Difference(
            story="jobs-mistakes",
            path=path,
            body=body,
            reason="the real server checks a job's labels before it copies the template's to them",
        )
        for path in ("message", "details/causes")
        for body in ('"name": "Bad_"', '"name": "aaa')
    ),
    Difference(
        story="jobs-changes-while-running",
        path="metadata/managedFields/*/fieldsV1/f:status/f:startTime",
        reason="a time that is taken away stays its owner's, as for the times that are null in Go",
    ),
    *(
        Difference(
            story=story,
            path="metadata/managedFields",
            asked=asked,
            reason="the real server notes no time for a change of the scale",
        )
        for story, asked in (
            ("jobs-deployments", "GET */deployments/web"),
            ("writing-applying-lists", "*/deployments/listed?*"),
            ("writing-applying-lists", "GET */deployments/listed"),
            ("custom-parts", "*/crontabs/daily"),
            ("custom-parts", "*/crontabs/daily/status"),
        )
    ),
    Difference(
        story="smaller-nodes",
        path="spec/taints",
        reason="nothing here takes away the taint of a node that is not ready yet",
    ),
    Difference(
        story="reading-table-of-nodes",
        path="spec",
        asked="POST *",
        reason="nothing here takes away the taint of a node that is not ready yet",
    ),
    *(
        Difference(
            story=story,
            path=f"{path}metadata/managedFields/*/fieldsV1/f:reporting*",
            reason="empty texts that Go always writes are their writer's here",
        )
        for story, path in (
            ("smaller-events", ""),
            ("smaller-events", "items/*/"),
            ("reading-table-of-events", ""),
            ("reading-table-of-events", "rows/*/object/"),
        )
    ),
    *(
        Difference(
            story=story,
            path="metadata/managedFields",
            asked=asked,
            reason="what is there from the beginning belongs to nobody here",
        )
        for story, asked in (("smaller-priority-classes", "GET *"),)
    ),
    Difference(
        story="smaller-priority-classes", path="description", asked="GET *", reason=NO_PROSE
    ),
    Difference(
        story="reading-table-of-the-rest",
        path="rows/*/object/metadata/managedFields",
        reason="what is there from the beginning belongs to nobody here",
    ),
    Difference(
        story="reading-table-of-the-rest",
        path="rows",
        asked="*/customresourcedefinitions",
        reason="no rows are null there, and an empty list here",
    ),
    *(
        Difference(story="smaller-services", path=f"spec/{field}", reason=NO_NETWORK)
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
    ),
    *(
        Difference(story=story, path="message", reason=GO_TEXT)
        for story in (
            "writing-json-patch",
            "writing-merge-patch",
            "writing-bodies-that-are-none",
        )
    ),
    Difference(
        story="writing-merge-patch",
        path="details",
        body='"data": {"a": "b"}',
        reason="the real server gives an empty object here, and none where a format is known",
    ),
    Difference(
        story="writing-json-patch",
        path="",
        body="jump",
        reason="an operation that is none makes the patch unreadable here: 400 instead of 422",
    ),
    Difference(
        story="writing-bodies-that-are-none",
        path="",
        body='"null"',
        reason="null is not an object here, and an empty one there",
    ),
    *(
        Difference(
            story="writing-strategic-merge-patch",
            path="",
            body=body,
            reason="the real server takes the patch's fault for its own: 500 instead of 422",
        )
        for body in ("wipe", '{"image": "x"}')
    ),
    Difference(
        story="writing-apply",
        path="",
        asked="*/configmaps/other?*",
        reason="the real server takes any version of what is not there yet",
    ),
    Difference(
        story="writing-apply",
        path="",
        body="another",
        reason="the name is compared with the path's before fields are merged: 400 instead of 409",
    ),
    Difference(story="writing-apply", path="message", body="a: [", reason=GO_TEXT),
    Difference(
        story="writing-fields-given-twice",
        path="",
        body="kind: ConfigMap",
        reason="YAML that gives a field twice is read as its last value, without a warning",
    ),
    Difference(
        story="writing-versions",
        path="",
        body='"resourceVersion": "x"',
        reason="a version that is not a number is one that is not the object's: 409 instead of 500",
    ),
    Difference(
        story="writing-versions",
        path="message",
        body='{"resourceVersion": "1"}',
        reason="it quotes the version in record",
    ),
    Difference(
        story="writing-paths-that-are-none",
        path="",
        asked="*/x/y/z",
        reason="a path too long is a page that is not there: 404, in plain text",
    ),
    Difference(
        story="reading-selectors",
        path="",
        asked="*fieldSelector=%3D",
        reason="a field selector without a field selects nothing there, and is an error here",
    ),
    Difference(story="reading-pages", path="message", asked="*continue=broken", reason=GO_TEXT),
    *(
        Difference(
            story="reading-versions-of-lists",
            path="",
            asked=asked,
            reason="versions to come, and versions of single objects, are not looked at",
        )
        for asked in ("*resourceVersion=999999999", "*/c0?resourceVersion=x")
    ),
    Difference(
        story="reading-forms",
        path="message",
        asked="*/configmaps",
        reason="the formats that are there are other ones",
    ),
    *(
        Difference(
            story="custom-*",
            path=path,
            asked=asked,
            reason=AT_ONCE,
        )
        for path, asked in (
            ("status", "POST */customresourcedefinitions"),
            ("metadata/managedFields", "GET */customresourcedefinitions/*"),
            ("resources/*/storageVersionHash", "GET *"),
        )
    ),
    Difference(
        story="custom-removed-definition",
        path="",
        asked="DELETE *",
        reason="a definition and its objects go at once here, by a finalizer there",
    ),
    *(
        Difference(
            story="custom-parts",
            path=path,
            body='"ready": "yes"',
            reason="the real server leaves `status.` out of one of two places",
        )
        for path in ("message", "details/causes")
    ),
    Difference(
        story="reading-forms",
        path="",
        asked="*/configmaps/c0",
        body="application/yaml",
        reason="objects are shown in JSON only; kubectl makes its YAML itself",
    ),
    *(
        Difference(
            story="custom-mistakes",
            path=path,
            body=body,
            reason="the scale's paths are not read from objects that are invalid anyway",
        )
        for path in ("message", "details/causes")
        for body in ('"replicas": 1.5', '"replicas": "x"', '"spec": []')
    ),
    *(
        Difference(
            story="custom-bad-definitions",
            path=path,
            reason=f"the finer rules of definitions: {UNCHECKED}",
        )
        for path in ("message", "details/causes")
    ),
    Difference(
        story="custom-bad-definitions",
        path="",
        body='"properties": {"a": {}}',
        reason=f"structural schemas: {UNCHECKED}",
    ),
    Difference(
        story="deleting-orphan",
        path="metadata/managedFields",
        asked="GET */dependent",
        reason="the garbage collector does not see to the owners of fields",
    ),
    *(
        Difference(
            story="deleting-namespace",
            path=path,
            reason="a namespace is emptied at once here, and says nothing while it goes",
            certain=False,
        )
        for path in ("status/conditions", "metadata/managedFields")
    ),
    *(
        Difference(story="documents-reviews", path=path, reason="reviews keep no owners of fields")
        for path in ("metadata", "spec", "warnings")
    ),
    Difference(
        story="documents-reviews",
        path="",
        body='"kind": "SelfSubjectAccessReview", "spec": {}',
        reason=f"reviews that ask nothing: {UNCHECKED}",
    ),
    Difference(
        story="documents-reviews",
        path="status/userInfo/uid",
        reason="users have no uid here",
    ),
)
"""Applied to the stories they name."""


def accepted(story):
    """Return the differences that concern a story."""
    return [d for d in DIFFERENCES if fnmatch(story, d.story)]


def rephrased(value):
    """Leave out of all texts what `PHRASES` says."""
    match value:
        case dict():
            return {name: rephrased(part) for name, part in value.items()}
        case list():
            return [rephrased(part) for part in value]
        case str():
            for phrase in PHRASES:
                value = phrase.pattern.sub(r"\1", value)
            return value
        case _:
            return value


def without(body, path):
    """Return a body without the part at a path."""
    first, *rest = path
    match body:
        case dict():
            found = {name for name in body if fnmatch(name, first)}
            return {
                name: without(part, rest) if name in found else part
                for name, part in body.items()
                if rest or name not in found
            }
        case list():
            return [without(item, rest) if rest else None for item in body]
        case _:
            return body


def compared(story, answer, *, but=None):
    """Return an answer without what is known to differ, or without all of it `but` one thing."""
    answer = replace(answer, body=rephrased(answer.body))
    for difference in accepted(story):
        if difference is but:
            continue
        if fnmatch(answer.asked, difference.asked) and difference.body in answer.sent:
            answer = left_out(answer, difference.path)
    return answer


def outdated(story, answer):
    """Return the differences of a story that are none any more, by what both servers said."""
    return [
        difference.reason
        for difference in accepted(story)
        if "*" not in difference.story
        and difference.certain
        and all(
            compared(story, ours, but=difference) == compared(story, theirs, but=difference)
            for ours, theirs in zip(*answer, strict=True)
        )
    ]


def left_out(answer, path):
    if not path:
        return replace(answer, code=0, warnings=[], body=None)
    if path == "warnings":
        return replace(answer, warnings=[])
    return replace(answer, body=without(answer.body, path.split("/")))
