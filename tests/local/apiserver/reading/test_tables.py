import pytest

from policyd.local.apiserver.builtin import builtin_kinds
from policyd.local.apiserver.reading.columns import CELLS, COMMON, columns_of, compile_path
from policyd.status.ages import age, duration

NOW = 1_000_000_000.0
KINDS = {served.resource: served for served in builtin_kinds()}
STORED = {served.storage: served for served in builtin_kinds()}


def seen(resource, value):
    """Return the cells of an object by column."""
    value = {"metadata": {"name": "one"}, "spec": {}} | value
    return {column.name: column.cell(value, NOW) for column in columns_of(KINDS[resource])}


def waiting(reason):
    return {"state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(-5, "<invalid>", id="in-the-future"),
        pytest.param(-0.5, "0s", id="clocks-that-differ-a-little"),
        pytest.param(0, "0s", id="now"),
        pytest.param(119, "119s", id="seconds"),
        pytest.param(120, "2m", id="minutes"),
        pytest.param(599, "9m59s", id="minutes-and-seconds"),
        pytest.param(601, "10m", id="minutes-alone"),
        pytest.param(3 * 3600, "3h", id="hours"),
        pytest.param(3 * 3600 + 120, "3h2m", id="hours-and-minutes"),
        pytest.param(9 * 3600 + 120, "9h", id="hours-alone"),
        pytest.param(49 * 3600, "2d1h", id="days-and-hours"),
        pytest.param(9 * 86400 + 3600, "9d", id="days-alone"),
        pytest.param(800 * 86400, "2y70d", id="years-and-days"),
        pytest.param(9 * 365 * 86400, "9y", id="years-alone"),
    ],
)
def test_lengths_of_time_are_short(seconds, expected):
    assert duration(seconds) == expected


def test_an_age_that_is_not_known_says_so():
    assert age(None, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param({"status": {"phase": "Running"}}, "Running", id="phase"),
        pytest.param({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted", id="reason"),
        pytest.param(
            {"status": {"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]}},
            "ImagePullBackOff",
            id="container-waits",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}],
                }
            },
            "Completed",
            id="container-ended",
        ),
        pytest.param(
            {"metadata": {"name": "x", "deletionTimestamp": "t"}, "status": {"phase": "Running"}},
            "Terminating",
            id="going",
        ),
    ],
)
def test_the_status_of_a_pod_is_one_word(pod, expected):
    assert seen("pods", pod)["Status"] == expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param({}, ("Running", "0/1", ""), id="new"),
        pytest.param(
            {
                "spec": {"completions": 3},
                "status": {"succeeded": 1, "startTime": "2001-09-09T01:46:30Z"},
            },
            ("Running", "1/3", "10s"),
            id="running",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
            ("Suspended", "0/1", ""),
            id="suspended",
        ),
        pytest.param(
            {
                "spec": {"completions": 1},
                "status": {
                    "succeeded": 1,
                    "startTime": "2001-09-09T01:46:30Z",
                    "completionTime": "2001-09-09T01:46:34Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ("Complete", "1/1", "4s"),
            id="complete",
        ),
    ],
)
def test_a_job_shows_how_far_it_is(job, expected):
    cells = seen("jobs.batch", job)

    assert (cells["Status"], cells["Completions"], cells["Duration"]) == expected


def test_a_node_shows_whether_it_takes_pods():
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"node-role.kubernetes.io/gpu": ""}

    cells = seen(
        "nodes",
        {
            "metadata": {"name": "n1", "labels": labels},
            "spec": {"unschedulable": True},
            "status": ready,
        },
    )

    assert (cells["Status"], cells["Roles"]) == ("Ready,SchedulingDisabled", "gpu")


def test_an_event_shows_what_happened_to_whom():
    cells = seen(
        "events",
        {
            "type": "Normal",
            "reason": "Admitted",
            "message": "it runs\n",
            "involvedObject": {"kind": "Job", "name": "train"},
            "lastTimestamp": "2001-09-09T01:46:30Z",
            "source": {"component": "policyd"},
        },
    )

    assert cells["Object"] == "job/train"
    assert (cells["Last Seen"], cells["Message"], cells["Source"]) == ("10s", "it runs", "policyd")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(".a.b", 1, id="fields"),
        pytest.param(".a['b']", 1, id="quoted-field"),
        pytest.param(r".labels.example\.com/x", None, id="missing"),
        pytest.param(".items[0].v", 5, id="index"),
        pytest.param(".items[*].v", 5, id="any-item"),
        pytest.param('.items[?(@.name=="y")].v', 6, id="filter"),
        pytest.param(".items[7].v", None, id="index-out-of-range"),
        pytest.param(".a.b.c", None, id="below-a-scalar"),
    ],
)
def test_printer_columns_find_their_values(path, expected):
    value = {"a": {"b": 1}, "items": [{"name": "x", "v": 5}, {"name": "y", "v": 6}]}

    assert compile_path(path)(value) == expected


@pytest.mark.parametrize("storage", sorted(CELLS))
def test_a_kind_has_a_cell_for_each_column_of_the_api_server_and_none_beside(storage):
    names = [column.name for column in columns_of(STORED[storage])]

    assert set(CELLS[storage]) <= set(names) <= {*CELLS[storage], *COMMON}


def test_a_cron_job_shows_what_its_jobs_run():
    template = {"spec": {"containers": [{"name": "a", "image": "b:1"}]}}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}

    cells = seen("cronjobs.batch", {"spec": spec})

    assert (cells["Containers"], cells["Images"], cells["Selector"]) == ("a", "b:1", "<none>")
    assert (cells["Schedule"], cells["Suspend"]) == ("* * * * *", "False")


def test_a_daemon_set_shows_its_counters_and_where_it_runs():
    template = {"spec": {"nodeSelector": {"pool": "gpu", "arch": "arm"}, "containers": []}}
    status = {"updatedNumberScheduled": 2, "numberAvailable": 1}

    cells = seen("daemonsets.apps", {"spec": {"template": template}, "status": status})

    assert (cells["Up-to-date"], cells["Available"], cells["Ready"]) == (2, 1, 0)
    assert cells["Node Selector"] == "arch=arm,pool=gpu"
