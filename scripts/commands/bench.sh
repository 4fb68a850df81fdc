#!/usr/bin/env bash
# [--with-intel-mpi] [NAME] [OPTION…] : benchmarks side by side with the peers, as `penstock bench` (--help lists them)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
set_up
if [[ "${1:-}" == --with-intel-mpi ]]; then
  shift
  set_up_intel_mpi
fi
enter_environment
build_preset release penstock_programs
exec penstock bench "$@"
