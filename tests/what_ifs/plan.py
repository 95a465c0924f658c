"""A random cluster, its jobs, and a change: made up from a number, as data."""

from dataclasses import dataclass, field
from random import Random

GPU, CPU, KUEUE, SPACE = "nvidia.com/gpu", "cpu", "kueue.x-k8s.io/v1beta2", "team"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
LABEL = "kueue.x-k8s.io/"
FLAVORS = ("h100", "a100", "l40")
COHORTS = ("all", "part")
EARLIEST, LATEST = 3_000, 200_000
"""How long jobs run, in seconds: long enough that two of them hardly ever end at the same time."""
AGES = 100_000
"""Over how many seconds jobs have come when the question is asked."""
ON_A_NODE = 6
"""GPUs of a node in a topology."""
TAINT = {"key": "example.com/kept", "value": "yes", "effect": "NoSchedule"}
TOLERATED = [{"key": TAINT["key"], "operator": "Exists"}]
PRIORITIES = {"low": 1, "middle": 5, "high": 10}
JOB_SET = "jobset.x-k8s.io/v1alpha2"


@dataclass
class Trial:
    """A random cluster with its jobs, and a change.

    Attributes:
        objects: Queues, flavors and nodes.
        configuration: Kueue's Configuration, as a list of one; empty for its defaults.
        jobs: Jobs, with when each comes, in seconds; a group of pods is a List.
        asked: When the question is asked.
        kind: The name of the kind of change.
        change: What is changed, as `changed` takes it.
        declared: Whether all jobs declare how long they run.
    """

    seed: int
    objects: list = field(default_factory=list)
    configuration: list = field(default_factory=list)
    jobs: list = field(default_factory=list)
    asked: int = 0
    kind: str = ""
    change: dict = field(default_factory=dict)
    declared: bool = True


@dataclass
class Setting:
    """What queues and jobs are drawn from.

    Attributes:
        rng: Draws.
        flavors: Names of the flavors.
        topology: Whether the flavors' nodes are in racks.
        tainted: Names of the flavors that only some jobs accept.
        resources: What quotas count.
        names: Names of the queues.
        queues: ClusterQueues.
        jobs: Jobs that came before the question, without times.
    """

    rng: Random
    flavors: tuple
    topology: bool
    tainted: frozenset
    resources: tuple
    names: list
    queues: list = field(default_factory=list)
    jobs: list = field(default_factory=list)

    def chance(self, share):
        return self.rng.random() < share


def made(kind, name, *, api=KUEUE, namespace="", **parts):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def bodies(body):
    """Return the objects of a job: the pods of a group, or the job."""
    return body["items"] if body["kind"] == "List" else [body]


def queue_of(body):
    return bodies(body)[0]["metadata"]["labels"][f"{LABEL}queue-name"]


def quotas(setting, *, cohort, least=1, most=6):
    """Random quotas of all flavors."""
    rng, flavors = setting.rng, []
    for flavor in setting.flavors:
        resources = []
        for name in setting.resources:
            quota = {"name": name, "nominalQuota": str(rng.randint(least, most))}
            if cohort and setting.chance(0.3):
                quota["borrowingLimit"] = str(rng.randint(0, 6))
            if cohort and setting.chance(0.2):
                quota["lendingLimit"] = str(rng.randint(0, int(quota["nominalQuota"])))
            resources.append(quota)
        flavors.append({"name": flavor, "resources": resources})
    return [{"coveredResources": list(setting.resources), "flavors": flavors}]


def preemption(setting, cohort):
    rng = setting.rng
    options = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
    chosen = {"withinClusterQueue": rng.choice(options)}
    if cohort:
        chosen["reclaimWithinCohort"] = rng.choice(["Never", "LowerPriority", "Any"])
    if cohort and chosen["reclaimWithinCohort"] != "Never" and setting.chance(0.3):
        chosen["borrowWithinCohort"] = {
            "policy": "LowerPriority",
            "maxPriorityThreshold": rng.choice([1, 5]),
        }
    return chosen


def fungibility(setting):
    return {
        "whenCanBorrow": setting.rng.choice(["MayStopSearch", "TryNextFlavor"]),
        "whenCanPreempt": setting.rng.choice(["MayStopSearch", "TryNextFlavor"]),
    }


def queue(setting, name):
    """A ClusterQueue with random quotas and policies."""
    rng = setting.rng
    cohort = rng.choice(COHORTS) if setting.chance(0.7) else ""
    found = made("ClusterQueue", name)
    if not setting.topology and setting.chance(0.25):
        found["metadata"]["annotations"] = {"policyd.io/reserve-after": f"{rng.randint(5, 300)}m"}
    found["spec"] = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
        "preemption": preemption(setting, cohort),
        "fairSharing": {"weight": str(rng.randint(1, 4))},
        "resourceGroups": quotas(setting, cohort=cohort),
    }
    if setting.chance(0.3):
        found["spec"]["flavorFungibility"] = fungibility(setting)
    if setting.chance(0.08):
        found["spec"]["stopPolicy"] = "Hold"
    return found


def local_queue(name):
    return made("LocalQueue", name, namespace=SPACE, spec={"clusterQueue": name})


def cohort(setting, name):
    spec = {"parentName": COHORTS[0]} if name != COHORTS[0] else {}
    if setting.chance(0.5):
        spec["resourceGroups"] = quotas(setting, cohort=bool(spec), least=0, most=3)
    return made("Cohort", name, spec=spec)


def flavor(setting, name):
    spec = {"nodeLabels": {"gpu": name}}
    if setting.topology:
        spec["topologyName"] = "racks"
    if name in setting.tainted:
        spec["nodeTaints"] = [TAINT]
    return made("ResourceFlavor", name, spec=spec)


def nodes(setting, name):
    """The nodes of a flavor: two racks, or one node that holds whatever the quotas allow."""
    if not setting.topology:
        yield node(setting, name, name, 1000)
        return
    for number in range(setting.rng.randint(2, 4)):
        yield node(setting, name, f"{name}-{number}", ON_A_NODE)


def node(setting, flavor_name, name, gpus):
    labels = {"gpu": flavor_name, HOST: name}
    if setting.topology:
        labels[RACK] = f"{flavor_name}-{setting.rng.randint(0, 1)}"
    room = {GPU: str(gpus), "cpu": "1000", "memory": "10Ti", "pods": "1000"}
    status = {"capacity": room, "allocatable": room}
    found = made("Node", name, api="v1", status=status)
    found["metadata"]["labels"] = labels
    if flavor_name in setting.tainted:
        found["spec"] = {"taints": [TAINT]}
    return found


def template(setting, runs, *, declares=True, gpus=None):
    """What the pods of a job are like."""
    rng, annotations = setting.rng, {}
    requests = {GPU: str(gpus or rng.choice([1, 1, 2, 2, 3, 4, 5, 6]))}
    if CPU in setting.resources:
        requests[CPU] = str(rng.randint(1, 3))
    container = {"name": "c", "image": "i", "resources": {"limits": requests, "requests": requests}}
    if declares:
        annotations["policyd.io/run-for"] = f"{runs}s"
    else:
        container["command"] = ["sleep", str(runs)]
    if setting.topology:
        wish = rng.choice(["required", "preferred", "unconstrained"])
        annotations[f"{LABEL}podset-{wish}-topology"] = (
            "true" if wish == "unconstrained" else rng.choice([RACK, RACK, HOST])
        )
    spec = {"restartPolicy": "Never", "containers": [container]}
    if setting.tainted and setting.chance(0.6):
        spec["tolerations"] = TOLERATED
    return {"metadata": {"annotations": annotations}, "spec": spec}


def job_spec(pod, pods):
    return {
        "suspend": True,
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": pod,
    }


def job(setting, name, *, declares=True):
    """A job that runs for a random time, and may be stopped before by its limit."""
    rng = setting.rng
    runs = rng.randint(EARLIEST, LATEST)
    labels = {f"{LABEL}queue-name": rng.choice(setting.names)}
    if setting.chance(0.6):
        labels[f"{LABEL}priority-class"] = rng.choice(list(PRIORITIES))
    if declares and setting.chance(0.3):
        limit = rng.randint(EARLIEST, 2 * LATEST) // 10 * 10 + 7
        labels[f"{LABEL}max-exec-time-seconds"] = str(limit)
    make = rng.choices((single, gang, resizable, job_set, group), (45, 20, 8, 14, 13))[0]
    found = make(setting, name, runs, declares)
    for each in bodies(found):
        each["metadata"].setdefault("labels", {}).update(labels)
    return found


def single(setting, name, runs, declares):
    """A Job of one pod."""
    spec = job_spec(template(setting, runs, declares=declares), 1)
    return made("Job", name, api="batch/v1", namespace=SPACE, spec=spec)


def gang(setting, name, runs, declares):
    """A Job whose pods start at once."""
    pod = template(setting, runs, declares=declares, gpus=setting.rng.randint(1, 3))
    spec = job_spec(pod, setting.rng.randint(2, 4))
    return made("Job", name, api="batch/v1", namespace=SPACE, spec=spec)


def resizable(setting, name, runs, declares):
    """A Job that is content with fewer pods."""
    found = gang(setting, name, runs, declares)
    del found["spec"]["completions"]
    found["metadata"]["annotations"] = {f"{LABEL}job-min-parallelism": "1"}
    return found


def job_set(setting, name, runs, declares):
    """A JobSet of one or two kinds of pods."""
    parts = [
        {
            "name": part,
            "replicas": 1,
            "template": {
                "spec": job_spec(
                    template(setting, runs, declares=declares, gpus=setting.rng.randint(1, 3)),
                    setting.rng.randint(1, 2),
                )
            },
        }
        for part in ("leader", "workers")[: setting.rng.randint(1, 2)]
    ]
    spec = {"suspend": True, "replicatedJobs": parts}
    return made("JobSet", name, api=JOB_SET, namespace=SPACE, spec=spec)


def group(setting, name, runs, declares):
    """A group of pods of one or two shapes, as the webhook leaves them."""
    shapes = [
        template(setting, runs, declares=declares, gpus=setting.rng.randint(1, 2))
        for _ in range(setting.rng.randint(1, 2))
    ]
    pods = [(number, shape) for shape in range(len(shapes)) for number in range(2)]
    items = []
    for number, shape in pods:
        pod = made("Pod", f"{name}-{shape}{number}", api="v1", namespace=SPACE)
        pod["metadata"] |= {
            "labels": {f"{LABEL}managed": "true", f"{LABEL}pod-group-name": name},
            "annotations": {
                **shapes[shape]["metadata"]["annotations"],
                **({"policyd.io/expected-run-time": f"{runs}s"} if declares else {}),
                f"{LABEL}pod-group-total-count": str(len(pods)),
                f"{LABEL}role-hash": f"shape{shape}",
            },
            "finalizers": [f"{LABEL}managed"],
        }
        gates = [f"{LABEL}admission", *([f"{LABEL}topology"] if setting.topology else [])]
        gated = [{"name": gate} for gate in gates]
        pod["spec"] = {**shapes[shape]["spec"], "schedulingGates": gated}
        items.append(pod)
    return {"apiVersion": "v1", "kind": "List", "metadata": {"name": name}, "items": items}


def trial_of(seed):
    """Make a trial of a number."""
    rng, trial = Random(seed), Trial(seed)
    flavors = FLAVORS[: rng.choice([1, 1, 2, 2, 3])]
    topology = rng.random() < 0.3
    setting = Setting(
        rng,
        flavors,
        topology,
        tainted=frozenset(rng.sample(flavors, 1) if rng.random() < 0.2 else ()),
        resources=(GPU, CPU) if rng.random() < 0.25 else (GPU,),
        names=[f"q{n}" for n in range(rng.randint(1, 4))],
    )
    setting.queues = [queue(setting, name) for name in setting.names]
    trial.objects = [
        made("Namespace", SPACE, api="v1"),
        *(each for name in flavors for each in nodes(setting, name)),
        *(flavor(setting, name) for name in flavors),
        *(made("WorkloadPriorityClass", name, value=value) for name, value in PRIORITIES.items()),
        *(cohort(setting, name) for name in COHORTS if setting.chance(0.4)),
        *setting.queues,
        *map(local_queue, setting.names),
    ]
    if topology:
        levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
        trial.objects.append(made("Topology", "racks", spec={"levels": levels}))
    if setting.chance(0.3):
        fair = {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}
        api = "config.kueue.x-k8s.io/v1beta2"
        trial.configuration = [{"apiVersion": api, "kind": "Configuration", "fairSharing": fair}]
    trial.declared = not setting.chance(0.03)
    count = rng.randint(8, 14)
    times = sorted(rng.sample(range(10, AGES, 5), count))
    silent = set() if trial.declared else {rng.randrange(count)}
    trial.jobs = [
        (at, job(setting, f"j{n}", declares=n not in silent)) for n, at in enumerate(times)
    ]
    setting.jobs = [body for _, body in trial.jobs]
    trial.asked = times[-1] + rng.randint(10, 9_999)
    kinds = [kind for kind in CHANGES if topology or kind not in OF_NODES]
    chosen = rng.choice(kinds)
    trial.kind, trial.change = chosen.__name__, chosen(setting)
    return trial


def submission(setting):
    while (new := job(setting, "new"))["kind"] == "List":
        pass  # pods cannot be tried
    return {"submitted": [new]}


def other_quota(setting):
    chosen = setting.rng.choice(setting.queues)
    return spec_of(
        chosen,
        resourceGroups=quotas(setting, cohort=chosen["spec"]["cohortName"], least=1, most=16),
    )


def other_preemption(setting):
    chosen = setting.rng.choice(setting.queues)
    return spec_of(chosen, preemption=preemption(setting, chosen["spec"]["cohortName"]))


def other_fungibility(setting):
    return spec_of(setting.rng.choice(setting.queues), flavorFungibility=fungibility(setting))


def stop(setting):
    chosen = setting.rng.choice([*setting.queues, *map(local_queue, setting.names)])
    return spec_of(chosen, stopPolicy=setting.rng.choice(["Hold", "HoldAndDrain"]))


def resumption(setting):
    held = [each for each in setting.queues if "stopPolicy" in each["spec"]]
    if not held:
        held = setting.queues[:1]
        held[0]["spec"]["stopPolicy"] = "Hold"
    return spec_of(held[0], stopPolicy="None")


def other_weight(setting):
    weight = {"weight": str(setting.rng.randint(1, 9))}
    return spec_of(setting.rng.choice(setting.queues), fairSharing=weight)


def other_cohort(setting):
    return spec_of(setting.rng.choice(setting.queues), cohortName=setting.rng.choice(COHORTS))


def cohort_quota(setting):
    return {"applied": [cohort(setting, setting.rng.choice(COHORTS))]}


def other_class(setting):
    """A priority class gets another value."""
    name, value = setting.rng.choice(list(PRIORITIES)), setting.rng.randint(0, 20)
    return {"applied": [made("WorkloadPriorityClass", name, value=value)]}


def fewer_flavors(setting):
    """A queue has only one flavor any more, or its flavors in another order."""
    chosen = setting.rng.choice(setting.queues)
    (before,) = chosen["spec"]["resourceGroups"]
    flavors = setting.rng.sample(before["flavors"], setting.rng.randint(1, len(before["flavors"])))
    return spec_of(chosen, resourceGroups=[{**before, "flavors": flavors}])


def more_flavors(setting):
    """A flavor and its node are new, and a queue has it."""
    chosen, name = setting.rng.choice(setting.queues), "new"
    new = [*nodes(setting, name), flavor(setting, name)]
    (before,) = chosen["spec"]["resourceGroups"]
    quota = {**before["flavors"][0], "name": name}
    groups = [{**before, "flavors": [*before["flavors"], quota]}]
    return {"applied": [*new, *spec_of(chosen, resourceGroups=groups)["applied"]]}


def taint(setting):
    """A flavor is only for jobs that tolerate it."""
    name = setting.rng.choice(setting.flavors)
    return {"applied": [made("ResourceFlavor", name, spec={"nodeTaints": [TAINT]})]}


def deletion(setting):
    chosen = bodies(setting.rng.choice(setting.jobs))[0]
    while chosen["kind"] == "Pod":
        chosen = bodies(setting.rng.choice(setting.jobs))[0]
    return {"deleted": [f"{chosen['kind'].lower()}/{chosen['metadata']['name']}"]}


def new_queue(setting):
    return {"applied": [queue(setting, "q9")]}


def lost_node(setting):
    """A node is lost."""
    return {"deleted": [f"node/{setting.flavors[0]}-{setting.rng.randint(0, 1)}"]}


def new_node(setting):
    name = setting.rng.choice(setting.flavors)
    return {"applied": [node(setting, name, f"{name}-9", ON_A_NODE)]}


CHANGES = (
    submission, submission, submission, other_quota, other_quota, other_preemption, other_weight,
    other_fungibility, stop, resumption, other_cohort, cohort_quota, other_class, fewer_flavors,
    more_flavors, taint, deletion, deletion, new_queue, lost_node, lost_node, new_node, new_node,
)  # fmt: skip
OF_NODES = {lost_node, new_node}


def spec_of(each, **spec):
    """Some fields of an object, changed."""
    return {"applied": [{"kind": each["kind"], "metadata": each["metadata"], "spec": spec}]}
