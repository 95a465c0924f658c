"""What processes have used, as the scheduler and the kernel account for it."""

from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that all threads of a process have had."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def memory_mb(pid: int) -> float:
    """Return the memory of a process, its share of what it shares counted."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(pss.split()[1]) / 1024


def most_memory_mb(pid: int) -> float:
    """Return the most memory that a process has had in use at a time."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024
