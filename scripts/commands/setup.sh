#!/usr/bin/env bash
# [--with PACKAGE…] : install what is missing: Debian packages, build/env (Python), build/mpi (MPICH and Open MPI)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
set_up
if [[ "${1:-}" == --with ]]; then set_up_more "${@:2}"; fi
say "ready: $("$env_dir/bin/python" --version), $(cd "$mpi_dir" && echo */lib | sed 's|/lib||g')"
