"""The stories, by what they are about."""

from tests.e2e.likeness.stories import (
    custom,
    deleting,
    documents,
    jobs,
    pods,
    reading,
    smaller,
    writing,
)

CHAPTERS = (pods, jobs, smaller, writing, reading, custom, deleting, documents)

STORIES = {
    f"{chapter.__name__.rpartition('.')[2]}-{name}": story
    for chapter in CHAPTERS
    for name, story in chapter.STORIES.items()
}
