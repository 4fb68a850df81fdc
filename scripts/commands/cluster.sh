#!/usr/bin/env bash
# up K RATE | run [-n N] CMD… | bench CASE | down : emulated nodes with shaped links (root); ./dev cluster shows all options
#
# A node is a process that holds a network, UTS, IPC and mount namespace: its own host name, its own /dev/shm, and an eth0 with
# one address. The nodes are connected to a bridge in its own namespace, so the host's network is not touched, and everything
# is gone when the holders end. tbf shapes both directions of each link to RATE (1gbit, 100mbit, or `none`). The launcher runs
# on the first node and reaches the others through scripts/node_agent.sh.
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
export PATH="$PATH:/usr/sbin:/sbin"
state="${PENSTOCK_CLUSTER_STATE:-$PENSTOCK_ROOT/build/cluster}" # other nodes than those of ./dev cluster: the demo's
subnet=10.77.0

usage() {
  die "cluster: expected one of
    ./dev cluster up K RATE                      K nodes, links of RATE (1gbit, 100mbit, none)
    ./dev cluster run [-n N | --ranks 3,4] [--mpi mpich|openmpi] CMD…
    ./dev cluster bench [--ranks 3,5] CASE [OPTIONS…]     penstock bench, its jobs over the nodes
    ./dev cluster down"
}

require_root() {
  [[ "$(id -u)" == 0 ]] || die "cluster: emulated nodes are network namespaces, which need root (you are $(id -un)); run it as root or with sudo"
  local tool
  for tool in ip tc unshare nsenter setsid; do
    command -v "$tool" >/dev/null || die "cluster: needs $tool (Debian: apt-get install iproute2 util-linux)"
  done
  unshare --net --uts --ipc --mount true 2>/dev/null ||
    die "cluster: this machine does not let root make namespaces (a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN)"
}

# A holder is a `sleep` with a unique name, so that a recycled process id is never mistaken for it.
holder_name() { echo "penstock-$1-$(printf '%s' "$state" | cksum | cut -d' ' -f1)"; }

is_holder() {
  local pid="$1" name="$2"
  [[ -n "$pid" && -r "/proc/$pid/cmdline" ]] && [[ "$(tr '\0' ' ' <"/proc/$pid/cmdline")" == "$name "* ]]
}

hold() { # hold NAME UNSHARE_OPTIONS…: starts a holder and prints its process id
  local name="$1" pid
  shift
  # Each holder has its own session and none of our files open, so it outlives this command and blocks nobody.
  # shellcheck disable=SC2016
  setsid --fork unshare "$@" bash -c 'echo $$ >"$1.new" && mv "$1.new" "$1" && exec -a "$2" sleep infinity' \
    hold "$state/$name.pid" "$(holder_name "$name")" </dev/null >/dev/null 2>&1 9>&-
  for _ in $(seq 100); do
    pid="$(cat "$state/$name.pid" 2>/dev/null || true)"
    if is_holder "$pid" "$(holder_name "$name")"; then
      echo "$pid"
      return 0
    fi
    sleep 0.05
  done
  die "cluster: the namespaces of '$name' could not be made"
}

# The processes on a node besides its holder: ranks of a job survive if a time limit ended their launcher.
tenants() {
  local network process
  network="$(readlink "/proc/$1/ns/net")"
  for process in /proc/[0-9]*; do
    [[ "$(readlink "$process/ns/net" 2>/dev/null)" == "$network" ]] || continue
    [[ "$process" == "/proc/$1" ]] || echo "${process#/proc/}"
  done
}

down() {
  local file name pid
  for file in "$state"/*.pid; do
    [[ -e "$file" ]] || continue
    name="$(basename "$file" .pid)"
    pid="$(cat "$file")"
    if is_holder "$pid" "$(holder_name "$name")"; then
      tenants "$pid" | xargs --no-run-if-empty kill -KILL 2>/dev/null || true
      kill "$pid"
    fi
    for _ in $(seq 100); do
      is_holder "$pid" "$(holder_name "$name")" || break
      sleep 0.02
    done
  done
  rm -rf "$state"
}

up() {
  local count="$1" rate="$2" node pid switch
  [[ "$count" =~ ^[1-9][0-9]?$ ]] || die "cluster up: K is '$count', expected a number of nodes from 1 to 99"
  [[ "$rate" == none || "$rate" =~ ^[0-9.]+[kmgt]?bit$ ]] ||
    die "cluster up: RATE is '$rate', expected a rate of tc such as 1gbit or 100mbit, or none"
  down
  mkdir -p "$state"
  # shellcheck disable=SC2154
  trap 'status=$?; [[ $status == 0 ]] || down; exit $status' EXIT
  switch="$(hold switch --net)"
  in_switch() { nsenter -t "$switch" -n "$@"; }
  in_switch ip link add bridge type bridge
  in_switch ip link set bridge up
  : >"$state/hosts"
  for ((node = 0; node < count; node++)); do
    pid="$(hold "node$node" --net --uts --ipc --mount)"
    nsenter -t "$pid" -m -r mount -t tmpfs -o size=50% shm /dev/shm
    nsenter -t "$pid" -u hostname "node$node"
    in_switch ip link add "port$node" type veth peer name eth0 netns "$pid"
    in_switch ip link set "port$node" master bridge up
    nsenter -t "$pid" -n ip link set lo up
    nsenter -t "$pid" -n ip address add "$subnet.$((node + 1))/24" dev eth0
    nsenter -t "$pid" -n ip link set eth0 up
    if [[ "$rate" != none ]]; then
      in_switch tc qdisc add dev "port$node" root tbf rate "$rate" burst 256k latency 20ms
      nsenter -t "$pid" -n tc qdisc add dev eth0 root tbf rate "$rate" burst 256k latency 20ms
    fi
    echo "$subnet.$((node + 1)) $pid" >>"$state/hosts"
  done
  echo "$rate" >"$state/rate"
  say "$count nodes, links of $rate"
}

run() {
  local ranks="" total="" mpi="${PENSTOCK_MPI:-mpich}" hosts=() host pid list="" i count first
  while [[ $# -gt 0 ]]; do
    case "$1" in
      -n) total="${2:?-n needs a number of ranks}" && shift 2 ;;
      --ranks) ranks="${2:?--ranks needs the ranks per node, such as 3,4}" && shift 2 ;;
      --mpi) mpi="${2:?--mpi needs mpich or openmpi}" && shift 2 ;;
      --) shift && break ;;
      -*) die "cluster run: unknown option '$1'; known: -n, --ranks, --mpi" ;;
      *) break ;;
    esac
  done
  [[ $# -gt 0 ]] || die "cluster run: no command was given"
  [[ -s "$state/hosts" ]] || die "cluster run: there are no nodes; make some with ./dev cluster up 2 1gbit"
  while read -r host pid; do
    is_holder "$pid" "$(holder_name "node${#hosts[@]}")" ||
      die "cluster run: node${#hosts[@]} is gone; make the nodes again with ./dev cluster up"
    [[ ${#hosts[@]} -gt 0 ]] || first="$pid"
    hosts+=("$host")
  done <"$state/hosts"
  if [[ -z "$ranks" ]]; then
    total="${total:-${#hosts[@]}}"
    [[ "$total" =~ ^[1-9][0-9]*$ ]] || die "cluster run: -n is '$total', expected a number of ranks"
    for ((i = 0; i < ${#hosts[@]}; i++)); do
      ranks+="${ranks:+,}$(((total * (i + 1)) / ${#hosts[@]} - (total * i) / ${#hosts[@]}))"
    done
  else
    [[ -z "$total" ]] || die "cluster run: give -n or --ranks, not both"
    [[ "$ranks" =~ ^[0-9]+(,[0-9]+)*$ ]] || die "cluster run: --ranks is '$ranks', expected numbers such as 3,4"
  fi
  local counts
  IFS=, read -r -a counts <<<"$ranks"
  [[ ${#counts[@]} -le ${#hosts[@]} ]] ||
    die "cluster run: --ranks names ${#counts[@]} nodes ($ranks), but there are ${#hosts[@]}"
  total=0
  for i in "${!counts[@]}"; do
    count="${counts[$i]}"
    [[ "$count" -gt 0 ]] || continue
    list+="${list:+,}${hosts[$i]}:$count"
    total=$((total + count))
  done
  [[ "$total" -gt 0 ]] || die "cluster run: no ranks were asked for"

  PENSTOCK_MPI="$mpi"
  enter_environment
  export PENSTOCK_CLUSTER="$state/hosts"
  # Hosts do not show to what rate their links are shaped.
  export PENSTOCK_MACHINE_FOLDER="${PENSTOCK_MACHINE_FOLDER:-$state/machines}"
  export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-eth0}" # PyTorch's gloo looks for an interface by the host name
  local agent="$scripts/node_agent.sh" launch
  case "$mpi" in
    mpich) launch=(mpiexec -launcher rsh -launcher-exec "$agent" -iface eth0 -hosts "$list" -n "$total") ;;
    openmpi)
      export PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_prte_if_include=eth0 OMPI_MCA_btl_tcp_if_include=eth0
      export PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe
      launch=(mpiexec --host "$list" -n "$total")
      ;;
    *) die "cluster run: --mpi is '$mpi', expected mpich or openmpi" ;;
  esac
  # shellcheck disable=SC2016
  exec nsenter -t "$first" -n -u -i -m -r sh -c 'cd "$0" && exec "$@"' "$PWD" "${launch[@]}" "$@"
}

command="${1:-}"
shift || true
case "$command" in
  check) require_root ;;
  up)
    [[ $# == 2 ]] || usage
    require_root
    set_up
    up "$@"
    ;;
  run)
    require_root
    run "$@"
    ;;
  bench)
    require_root
    [[ -s "$state/hosts" ]] || die "cluster bench: there are no nodes; make some with ./dev cluster up 4 1gbit"
    enter_environment
    # Jobs select their MPI themselves.
    launcher="$PENSTOCK_ROOT/dev cluster run"
    if [[ "${1:-}" == --ranks ]]; then
      launcher+=" --ranks ${2:?--ranks needs the ranks per node, such as 3,4}"
      shift 2
    fi
    PENSTOCK_BENCH_LAUNCHER="$launcher" exec penstock bench "$@"
    ;;
  down)
    require_root
    down
    ;;
  *) usage ;;
esac
