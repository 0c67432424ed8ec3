#!/bin/sh
# Plays the batches of updates.txt onto a bridge, each as one bundle at its time from now on.
#
#   sh play-updates.sh BRIDGE
#
# A batch that comes late because the one before took too long goes at once, and is told.
set -eu
bridge=${1:?the name of a bridge, as ovs-ofctl takes it}
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
