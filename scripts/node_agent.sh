#!/usr/bin/env bash
# MPI launchers call this instead of ssh: node_agent.sh [OPTIONS] HOST COMMAND… enters the namespaces of an emulated node (see
# commands/cluster.sh) and runs the command there.
set -euo pipefail
while [[ "${1:-}" == -* ]]; do shift; done
host="$1"
shift
pid="$(while read -r address holder; do [[ "$address" != "$host" ]] || echo "$holder"; done <"$PENSTOCK_CLUSTER")"
[[ -n "$pid" ]] || {
  echo "node_agent: $host is no node of this cluster" >&2
  exit 1
}
# shellcheck disable=SC2016
exec nsenter -t "$pid" -n -u -i -m -r sh -c 'cd "$0" && eval "$1"' "$PWD" "$*"
