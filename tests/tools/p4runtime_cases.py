"""Asks a NIC numbered questions, and compares its answers with those of the P4Runtime specification 1.4.

    p4runtime_cases.py ADDRESS P4INFO PROGRAM

The NIC has just begun, knows no pipeline yet, and has the ports 1 and 2. Groups follow each other and
leave no entries behind; the first line of each says which section of the specification it is about. A
group that breaks off fails, and what is left of it is not asked.

Prints `ok NUMBER GROUP: WHAT` or `FAILED NUMBER GROUP: WHAT: expected X got Y` for each case, and how
many passed and failed. Ends with 0 if all passed.
"""

import os
import sys
import traceback

import p4runtime_entity_cases as entities
import p4runtime_session_cases as sessions
import p4runtime_stream_cases as streams
from p4runtime_peer import Nic


def main():
    """Asks everything."""
    nic = Nic(*sys.argv[1:4])
    number, failed = 0, 0
    for group in sessions.GROUPS + entities.GROUPS + streams.GROUPS:
        title, count, cases = group.__name__.replace("_", " "), 0, group(nic)
        while True:
            try:
                name, expected, got = next(cases)
            except StopIteration:
                break
            # Whatever breaks a group off is a failure of the NIC until it is looked at.
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
    # Streams that others hold wait forever.
    os._exit(1 if failed or number == 0 else 0)


if __name__ == "__main__":
    main()
