#!/usr/bin/env bash
# [--with-intel-mpi] [NAME] [OPTION…] : benchmarks side by side with the peers, as `penstock bench` (--help lists them)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
set_up
if [[ "${1:-}" == --with-intel-mpi ]]; then
  shift
  if [[ ! -x "$mpi_dir/impi/bin/mpiexec" ]]; then
    say "Intel MPI, under the Intel Simplified Software License, in build/mpi/impi"
    "$env_dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --ignore-installed \
      --no-warn-script-location --prefix "$mpi_dir/impi" impi-rt==2021.19.0 >&2 || die "pip could not install impi-rt"
  fi
fi
enter_environment
build_preset release penstock_programs
exec penstock bench "$@"
