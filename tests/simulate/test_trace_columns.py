"""Traces in columns: what is read, what is left out, and how errors name their place."""

import pytest

from policyd.simulate.trace_columns import (
    SkippedTraceJobs,
    TableLayout,
    columns_of,
    format_of,
    read_jobs,
)
from policyd.simulate.traces import GPU, TraceError

CSV = """timestamp,duration,num_gpus,cluster
2017-10-09 07:01:55,66.0,1,vision
2017-10-09 07:02:55,3600,16,speech
"""
SACCT = """JobID|JobName|User|Account|Partition|Submit|Start|End|ElapsedRaw|State|AllocTRES|Timelimit
7|train|ann|vision|gpu|2025-01-02T03:00:00|2025-01-02T03:10:00|2025-01-02T04:10:00|3600|COMPLETED|billing=8,cpu=8,gres/gpu=2,mem=64G|02:00:00
7.batch|batch||vision||2025-01-02T03:00:00|2025-01-02T03:10:00|2025-01-02T04:10:00|3600|COMPLETED|cpu=8|
8|prep|ann|vision|cpu|2025-01-02T03:00:01|2025-01-02T03:10:00|2025-01-02T04:10:00|60|COMPLETED|cpu=8|1-00:00:00
9|train|bob|speech|gpu|2025-01-02T03:00:02|Unknown|Unknown|0|PENDING|gres/gpu=8|UNLIMITED
10|train|bob|speech|gpu|2025-01-02T03:00:03|2025-01-02T03:10:00|2025-01-02T03:20:00|600|CANCELLED by 7|gres/gpu=8|90
"""  # noqa: E501 - as sacct writes it
SWF = """; Computer: a cluster
; MaxProcs: 64
1 0 10 600 8 -1 -1 8 900 -1 1 4 2 -1 1 -1 -1 -1
2 30 -1 -1 8 -1 -1 8 900 -1 0 5 2 -1 1 -1 -1 -1
"""


def read(text, *, form=None, columns="", gpus_per_node=8):
    left_out = SkippedTraceJobs()
    lines = text.splitlines()
    layout = TableLayout(columns_of(columns), gpus_per_node)
    jobs = list(read_jobs(lines, "t", form or format_of(lines[0]), layout, left_out))
    return jobs, left_out.counts


def test_a_csv_file_with_the_usual_names_needs_no_mapping():
    (first, second), left_out = read(CSV)

    assert (first.seconds, first.gpus, first.team, first.queue) == (66, 1, "vision", "vision")
    assert second.at - first.at == 60
    assert (second.pod_sets[0].count, second.pod_sets[0].requests) == (2, {GPU: 8})
    assert left_out == {}


def test_columns_are_named_by_the_user_and_may_be_left_out():
    text = "when,cards,ran,who,timestamp\n10,4,60,ann,9\n"

    (job,), _ = read(text, columns="submit=when, gpus=cards,seconds=ran,team=who")

    assert (job.at, job.gpus, job.seconds, job.team, job.queue) == (10, 4, 60, "ann", "")


def test_a_run_time_may_be_the_time_between_start_and_end():
    (job,), _ = read("submit,start,end,gpus\n0,100,160.5,1\n")

    assert job.seconds == 60.5


def test_sacct_has_steps_and_jobs_without_gpus_or_an_end():
    jobs, left_out = read(SACCT)

    assert [(job.key, job.gpus, job.seconds, job.limit) for job in jobs] == [
        ("vision/7", 2, 3600, 7200),
        ("speech/10", 8, 600, 5400),
    ]
    assert left_out == {"they request no GPU": 1, "they have not ended, or never ran": 1}


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        pytest.param("cpu=8,gres/gpu=2,mem=64G", 2, id="one-number"),
        pytest.param("gres/gpu:a100=4,gres/gpu=4", 4, id="types-beside-the-sum"),
        pytest.param("gres/gpu:a100=4,gres/gpu:h100=2", 6, id="types-alone"),
        pytest.param("gres/gpumem=80G,gres/gpu=1", 1, id="memory-of-a-gpu"),
    ],
)
def test_gpus_are_found_among_what_slurm_allocated(resources, gpus):
    (job,), _ = read(f"Submit|Elapsed|AllocTRES\n1|1:00|{resources}\n")

    assert job.gpus == gpus


def test_a_job_that_was_cancelled_before_its_start_never_ran():
    jobs, left_out = read("Submit|Start|End|ElapsedRaw|AllocTRES\n1|Unknown|9|0|gres/gpu=1\n")

    assert jobs == []
    assert left_out == {"they have not ended, or never ran": 1}


def test_swf_is_known_by_its_comments_and_its_columns():
    (job,), left_out = read(SWF)

    assert (job.key, job.at, job.seconds, job.gpus, job.limit) == ("4/1", 0, 600, 8, 900)
    assert job.queue == "1"
    assert left_out == {"they have not ended, or never ran": 1}


@pytest.mark.parametrize(
    ("gpus", "pods", "per_node", "expected"),
    [
        pytest.param(4, "", 8, (1, 4), id="one-node-holds-all"),
        pytest.param(12, "", 8, (2, 6), id="as-few-as-share-evenly"),
        pytest.param(13, "", 8, (13, 1), id="a-prime-number"),
        pytest.param(12, "3", 8, (3, 4), id="as-it-says"),
        pytest.param(12, "5", 8, (2, 6), id="it-cannot-be"),
        pytest.param(8, "", 4, (2, 4), id="smaller-nodes"),
    ],
)
def test_gpus_are_shared_by_as_few_pods_as_nodes_allow(gpus, pods, per_node, expected):
    (job,), _ = read(f"submit,seconds,gpus,pods\n0,1,{gpus},{pods}\n", gpus_per_node=per_node)

    assert (job.pod_sets[0].count, job.pod_sets[0].requests[GPU]) == expected


def test_jobs_of_the_same_name_are_distinguished():
    jobs, _ = read("submit,seconds,gpus,name\n0,1,1,a\n0,1,1,a\n")

    assert [job.key for job in jobs] == ["all/a", "all/a-2"]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        pytest.param("", "", "t: the trace is empty", id="empty"),
        pytest.param(
            "submit,gpus\n1,1\n", "", "t:1: no column says `seconds`", id="missing-column"
        ),
        pytest.param(
            CSV, "gpus=num_gpu", "t:1: no column `num_gpu`", id="a-name-that-is-not-there"
        ),
        pytest.param(CSV, "cards=x", "unknown field `cards`", id="unknown-field"),
        pytest.param(CSV, "gpus", "`gpus` names no column", id="no-column"),
        pytest.param(
            CSV.replace("3600", "an hour"),
            "",
            "t:3: column `duration`: `an hour` is not a number",
            id="not-a-number",
        ),
        pytest.param(
            CSV.replace("3600", "nan"),
            "",
            "t:3: column `duration`: `nan` is not a number",
            id="nan",
        ),
        pytest.param(
            CSV.replace("3600", "-5"),
            "",
            "t:3: column `duration`: `-5` is negative",
            id="negative",
        ),
        pytest.param(
            CSV.replace(",16,", ",1.5,"),
            "",
            "t:3: column `num_gpus`: `1.5` is not a whole number",
            id="half-a-gpu",
        ),
        pytest.param(
            CSV.replace("2017-10-09 07:02:55", "yesterday"),
            "",
            "t:3: column `timestamp`: `yesterday` is not a time",
            id="not-a-time",
        ),
        pytest.param(CSV[:-12], "", "t:3: 2 of 4 columns", id="cut-in-half"),
        pytest.param(
            CSV.replace("2017-10-09 07:02", '"2017-10-09 07:02'),
            "",
            "t:3: unexpected end of data",
            id="cut-in-a-quote",
        ),
        pytest.param(SWF[:-20], "", "t:4: 10 of 18 columns", id="swf-cut-in-half"),
        pytest.param(SACCT[:-30], "", "t:6: 9 of 12 columns", id="sacct-cut-in-half"),
    ],
)
def test_an_error_names_line_and_column(text, columns, message):
    lines = text.splitlines()
    form = format_of(lines[0]) if lines else "csv"

    with pytest.raises(TraceError) as raised:
        list(read_jobs(lines, "t", form, TableLayout(columns_of(columns)), SkippedTraceJobs()))

    assert str(raised.value) == message
