"""The faults that are in force at a moment."""

from collections import Counter

OF_REQUESTS = {
    "429": 429,
    "500": 500,
    "unreachable": "unreachable",
    "time-out before": "time-out before",
    "time-out after": "time-out after",
}
OF_CHUNKS = ("delay", "silence", "loss", "repeat")
STRUCK = {"frozen": "freeze at a write", "unanswered": "unanswered admission"}
ADMISSION = b'"podSetAssignments"'
LONGEST_DELAY = 60.0
LOST_SECONDS = 60.0
"""So long an admission is not answered, and the watch of workloads tells of nothing."""


class Trouble:
    """Tells the network which faults there are; only controllers suffer from them.

    Args:
        loop: Tells the time.
        random: Decides whether a fault strikes.
    """

    def __init__(self, loop, random):
        self._loop, self._random = loop, random
        self._until = {}
        self.struck = Counter()
        self.conflict = None
        """Changes the object of a write, so that the write is refused."""
        self.crash = None
        """Kills a controller, and starts another one."""
        self.freeze = None
        """Freezes a controller."""
        self._writes_left, self._doom = 0, ""
        self._lost = "", 0.0
        """The path of an admission that is not answered, and until when."""

    def begin(self, fault, lasts, rate=1.0):
        """Have a fault strike, with this rate each time, for so many seconds."""
        self._until[fault] = (self._loop.time() + lasts, rate)

    def end(self):
        """End all faults."""
        self._until.clear()
        self._writes_left = 0

    def is_on(self, fault):
        until, rate = self._until.get(fault, (0.0, 0.0))
        if not until:
            return False
        if until <= self._loop.time():
            del self._until[fault]
            return False
        return rate == 1.0 or self._random() < rate

    def strike_at(self, number, doom):
        """Have a controller meet its doom at its n-th write from now on.

        It is killed `before` the write is carried out, or `after`; or it is `frozen` afterwards.
        Or a write that admits a workload is `unanswered`, as often as it is tried, and the watch of
        workloads is late.
        """
        self._writes_left, self._doom = number, doom

    def doom(self, process, call):
        """Return what becomes of a request, or of its process; empty if nothing does."""
        if not self._writes_left or call.method == "GET" or not is_controller(process):
            return ""
        if self._doom == "unanswered" and ADMISSION not in (call.body or b""):
            return ""
        self._writes_left -= 1
        if self._writes_left:
            return ""
        self.struck[STRUCK.get(self._doom, "crash at a write")] += 1
        if self._doom == "unanswered":
            self._lost = call.path, self._loop.time() + LOST_SECONDS
        return self._doom

    def of_request(self, process, method, path):
        """Return the fault of a request, if it has one."""
        if path == self._lost[0] and self._loses(process):
            return "unreachable"
        if not self._until or not is_controller(process):
            return None
        for fault, answer in OF_REQUESTS.items():
            if self.is_on(fault):
                self.struck[fault] += 1
                return answer
        if method in {"PATCH", "PUT"} and self.is_on("conflict") and self.conflict(path):
            self.struck["conflict"] += 1
        return None

    def _loses(self, process):
        return self._loop.time() < self._lost[1] and is_controller(process)

    def of_chunk(self, process, path):
        """Return the fault of a part of a watch, if it has one."""
        if path.endswith("/workloads") and self._loses(process):
            return "late"
        if not self._until or not is_controller(process):
            return None
        for fault in OF_CHUNKS:
            if self.is_on(fault):
                self.struck[fault] += 1
                return fault
        return None

    def seconds(self, fault):
        """Return how long a part of a watch is delayed."""
        if fault == "late":
            return self._lost[1] - self._loop.time()
        return LONGEST_DELAY * self._random() ** 2

    def server_is_down(self):
        return bool(self._until) and self.is_on("server down")

    def webhooks_are_down(self):
        if bool(self._until) and self.is_on("webhooks down"):
            self.struck["webhooks down"] += 1
            return True
        return False


def is_controller(process):
    """Tell whether a process is a controller: the others do not suffer from faults."""
    return process is not None and process.name.startswith("controller")
