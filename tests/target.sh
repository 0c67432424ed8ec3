#!/usr/bin/env bash
# Runs Shunt as the switch under test of external test suites, which call the commands below.
# Arguments are environment variables:
#   TARGET_PORTS       "p1=1 p2=2": network devices of this namespace and their OpenFlow numbers
#   TARGET_DPID        16 hexadecimal digits
#   TARGET_VERSIONS    "1.0 1.3 ..": OpenFlow versions of the suite, which this script ignores
#   TARGET_CONTROLLER  tcp:IP:PORT to connect to, or empty
#   TARGET_LISTEN      IP:PORT to accept OpenFlow connections on, or empty
#   TARGET_STATE       a folder that only this switch uses
#   SHUNT_BIN          the folder of shuntd and shuntctl; default target/release
# run         starts the switch in the foreground, without rules; SIGTERM ends it
# settle      does nothing: after a barrier reply no packet uses the old rules, and a statistics
#             reply includes the counts of every thread
# reset       removes learned MAC addresses; there is no connection tracking to reset
# vsctl ARGS  sets VLANs of a port in the syntax of ovs-vsctl: `set port p1 tag=10 ..`, or
#             `clear port p1 tag -- ..`, which clears all VLAN settings
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
# Suites also measure performance, so the default is the release build.
bin=${SHUNT_BIN:-${CARGO_TARGET_DIR:-$root/target}/release}
if [ ! -x "$bin/shuntd" ]; then
  echo "$0: $bin/shuntd does not exist: run 'cargo build --release --package shuntd', or set SHUNT_BIN" >&2
  exit 1
fi

quoted() { local list=; for word in "$@"; do list="$list\"$word\", "; done; printf '[%s]' "$list"; }

configuration() {
  local listen=()
  [ -z "${TARGET_LISTEN:-}" ] || listen=("ptcp:${TARGET_LISTEN##*:}:${TARGET_LISTEN%:*}")
  printf '[logging]\nfilter = "info"\n[threads]\npacket = %s\n' "${TARGET_THREADS:-1}"
  printf '[[bridge]]\nname = "br0"\ndatapath_id = "%s"\nmac = "aa:55:aa:55:00:00"\n' "$TARGET_DPID"
  printf 'controllers = %s\n' "$(quoted ${TARGET_CONTROLLER:-})"
  printf 'listen = %s\n' "$(quoted "${listen[@]}")"
  local port
  for port in $TARGET_PORTS; do
    printf '[[bridge.port]]\nname = "%s"\nnumber = %s\ntype = "af_packet"\n' \
      "${port%%=*}" "${port##*=}"
  done
}

case ${1:-} in
run)
  mkdir -p "$TARGET_STATE"
  configuration >"$TARGET_STATE/shunt.toml"
  exec "$bin/shuntd" --config "$TARGET_STATE/shunt.toml" --run-dir "$TARGET_STATE"
  ;;
settle) ;;
reset) ovs-appctl -t "$TARGET_STATE/shuntd.$(cat "$TARGET_STATE/shuntd.pid").ctl" fdb/flush ;;
vsctl)
  case "$2 $3" in
  "set port") "$bin/shuntctl" --run-dir "$TARGET_STATE" set-vlans "${@:4}" ;;
  "clear port") "$bin/shuntctl" --run-dir "$TARGET_STATE" set-vlans "$4" ;;
  *) exit 2 ;;
  esac
  ;;
*)
  echo "usage: $0 run|settle|reset|vsctl ARGS" >&2
  exit 2
  ;;
esac
