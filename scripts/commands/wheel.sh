#!/usr/bin/env bash
# [PYTHON] : build a wheel that installs without a compiler, and an sdist, into build/wheels
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$PENSTOCK_ROOT/scripts/environment.sh"
answer_help "$@"
set_up
enter_environment
set_up_wheel

chosen="${1:-$env_dir/bin/python}" # from 3.12 on, one wheel is for all later versions, too

raw="$PENSTOCK_ROOT/build/wheels-raw" ready="$PENSTOCK_ROOT/build/wheels"
rm -rf "$raw" "$ready"
mkdir -p "$raw" "$ready"
say "wheel for $("$chosen" --version)"
cd "$PENSTOCK_ROOT"
# The libraries of this checkout's MPIs are built against, and stay outside.
PENSTOCK_MPI_ROOTS="$mpi_dir/mpich;$mpi_dir/openmpi" "$chosen" -m pip wheel --quiet --disable-pip-version-check \
  --no-deps --wheel-dir "$raw" .
PATH="$PENSTOCK_ROOT/build/wheel-env/bin:$PATH" "$PENSTOCK_ROOT/build/wheel-env/bin/python" -m auditwheel repair \
  --wheel-dir "$ready" --exclude 'libmpi*.so*' "$raw"/*.whl
"$PENSTOCK_ROOT/build/wheel-env/bin/python" -m build --sdist --outdir "$ready" . >"$raw/sdist.log" 2>&1 || {
  tail -20 "$raw/sdist.log" >&2
  die "the sdist could not be built"
}
say "wheels:"
ls -l "$ready"
