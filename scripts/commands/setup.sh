#!/usr/bin/env bash
#  : install what is missing: Debian packages, build/env (Python), build/mpi (MPICH and Open MPI)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
set_up
say "ready: $("$env_dir/bin/python" --version), $(cd "$mpi_dir" && echo */lib | sed 's|/lib||g')"
