"""Runs numbered cases against a NIC, and compares its answers with the P4Runtime specification 1.4.

    p4runtime_cases.py ADDRESS P4INFO PROGRAM

The NIC has just started, has no pipeline yet, and has the ports 1 and 2. Groups run in order and leave
no entries. The docstring of a group is the section of the specification that it tests. A group that
raises an exception fails, and its other cases do not run.

Prints `ok NUMBER GROUP: CASE` or `FAILED NUMBER GROUP: CASE: expected X got Y` for each case, and the
numbers of passed and failed cases. Exits with 0 if all passed.
"""

import os
import sys
import traceback

import p4runtime_entity_cases as entities
import p4runtime_session_cases as sessions
import p4runtime_stream_cases as streams
from p4runtime_peer import Nic


def main():
    """Runs all groups."""
    nic = Nic(*sys.argv[1:4])
    number, failed = 0, 0
    for group in sessions.GROUPS + entities.GROUPS + streams.GROUPS:
        title, count, cases = group.__name__.replace("_", " "), 0, group(nic)
        while True:
            try:
                name, expected, got = next(cases)
            except StopIteration:
                break
            # Any exception counts as a failure of the NIC.
            except Exception:  # pylint: disable=broad-except
                name, expected, got = "the rest", "answers", traceback.format_exc()
            number, count = number + 1, count + 1
            if expected == got:
                print(f"ok {number} {title}: {name}")
            else:
                failed += 1
                print(f"FAILED {number} {title}: {name}: expected {expected} got {got}")
        print(f"# {title}: {count} of {group.__doc__}", flush=True)
    print(f"{number - failed} passed, {failed} failed", flush=True)
    # Threads of open streams never end.
    os._exit(1 if failed or number == 0 else 0)


if __name__ == "__main__":
    main()
