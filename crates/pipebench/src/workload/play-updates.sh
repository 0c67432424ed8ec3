#!/bin/sh
# Sends the batches of updates.txt to a bridge. Each is one bundle, at its time after the start.
#
#   sh play-updates.sh BRIDGE
#
# If a batch takes too long, the next one is sent at once, and the delay is printed.
set -eu
bridge=${1:?name of the bridge, as for ovs-ofctl}
awk -v bundle="ovs-ofctl -O OpenFlow13 --bundle add-flows '$bridge' -" '
function now(   time) { clock = "date +%s.%N"; clock | getline time; close(clock); return time + 0 }
function done() { if (is_open && close(bundle)) exit failed = 1; is_open = 0 }
BEGIN { start = now() }
/^# batch / {
    done()
    early = start + $5 - now()
    if (early > 0) system("sleep " early)
    else if (early < -0.1) printf "batch %s is %.3f s late\n", $3, -early > "/dev/stderr"
    next
}
/^#/ { next }
{ print | bundle; is_open = 1 }
END { if (!failed) done(); exit failed }
' "$(dirname "$0")/updates.txt"
