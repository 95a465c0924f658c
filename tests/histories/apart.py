"""Work that is done in forks: each begins with what was set up once, and ends without a trace."""

import multiprocessing
from collections import deque
from multiprocessing.connection import wait


def apart(work, items, *, at_once):
    """Yield what a function returns of each item, as it comes, each from a fork of its own.

    Args:
        work: Takes an item; what it returns, or raises, can be pickled.
        items: Any.
        at_once: Forks at a time.
    """
    fork = multiprocessing.get_context("fork")
    left, running = deque(items), {}
    try:
        while left or running:
            while left and len(running) < at_once:
                ours, theirs = fork.Pipe(duplex=False)
                process = fork.Process(target=_report, args=(theirs, work, left.popleft()))
                process.start()
                theirs.close()
                running[ours] = process
            for ours in wait(list(running)):
                found = ours.recv()
                running.pop(ours).join()
                ours.close()
                if isinstance(found, Exception):
                    raise found
                yield found
    finally:
        for process in running.values():
            process.terminate()


def _report(theirs, work, item):
    try:
        found = work(item)
    except Exception as error:  # noqa: BLE001 - it is raised where the work is asked for
        found = error
    theirs.send(found)
