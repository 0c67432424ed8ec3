#!/usr/bin/env python3
"""Starts applications of os-ken 1.4.1 on a current Python: `os_ken_manager.py --ofp-tcp-listen-port N APP`.

1.4.1 is the last release with the sample applications in its package. The program restores names that newer
versions of Python and eventlet have removed, before the program imports os-ken.
"""

import collections
import collections.abc
import inspect
import sys
import warnings

warnings.simplefilter("ignore")
for name in collections.abc.__all__:
    # Moved in Python 3.10.
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))
if not hasattr(inspect, "getargspec"):
    # Removed in Python 3.11.
    inspect.getargspec = inspect.getfullargspec

import eventlet.wsgi  # noqa: E402

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
    # Removed in eventlet 0.30.3.
    eventlet.wsgi.ALREADY_HANDLED = b""

from os_ken.cmd.manager import main  # noqa: E402

sys.exit(main(args=sys.argv[1:], prog="osken-manager"))
