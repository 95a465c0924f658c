"""batch/v1 CronJob: it does not queue itself, and its Jobs queue where it says."""

from typing import Final

from policyd.api.makers import GroupKind
from policyd.jobs.parents import SUBMISSION, pass_on
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

CRON_JOB: Final[GroupKind] = ("batch", "CronJob")
_JOBS: Final[Path] = ("spec", "jobTemplate")


def pass_on_queue(draft: Draft) -> None:
    """Give the Jobs of a CronJob its queue and its priority class, as far as it names them."""
    if isinstance(draft.get(_JOBS), dict):
        pass_on(draft, _JOBS, SUBMISSION)
