#!/usr/bin/env bash
# CMD… : run a command in the built environment (PENSTOCK_MPI=mpich|openmpi chooses the MPI)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
[[ $# -gt 0 ]] || die "exec: no command was given; for example: ./dev exec mpiexec -n 4 python -m mpi4py.bench helloworld"
explicit_build="${PENSTOCK_BUILD:-}"
set_up
enter_environment
# CMake would take it for an installation prefix: find_package(penstock) would look into the checkout.
export -n PENSTOCK_ROOT
if [[ -z "$explicit_build" && ! -e "$PENSTOCK_BUILD/.built" ]]; then
  build_preset release penstock_programs
fi
exec "$@"
