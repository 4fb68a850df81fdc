# shellcheck shell=bash
# Sourced by ./dev and its commands: installs what a machine lacks, and defines the environment to run in.
# Every step returns at once if nothing is missing.
#
# A command needs one of these sets; each includes those above it:
#
#   set_up   for                      Debian packages      files of scripts/             MPIs of requirements-mpi.txt
#   build    the programs compiled    packages_of_build    requirements-build.txt        the one of PENSTOCK_MPI, or MPICH
#   demo     the demo run                                  requirements-demo.txt, -data
#   all      any other command        packages_of_all      requirements.txt              all
PENSTOCK_ROOT="${PENSTOCK_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}"
scripts="$PENSTOCK_ROOT/scripts"
env_dir="$PENSTOCK_ROOT/build/env"
mpi_dir="$PENSTOCK_ROOT/build/mpi"

# Prints the command's line of `./dev help` if its first argument asks for help.
answer_help() {
  [[ "${1:-}" == -h || "${1:-}" == --help ]] || return 0
  sed -n '2s/^# *//p' "$0"
  exit 0
}

say() { printf '\033[1m==\033[0m %s\n' "$*" >&2; }
die() {
  printf './dev: %s\n' "$*" >&2
  exit 1
}

# --- Debian packages ---------------------------------------------------------------------------------------------

find_header() {
  local directory
  for directory in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu"; do
    [[ -e "$directory/$1" ]] && return 0
  done
  return 1
}

# The first Python that can make a virtual environment and compile an extension.
find_python() {
  local candidate
  for candidate in ${PENSTOCK_PYTHON:+"$PENSTOCK_PYTHON"} python3 /usr/bin/python3; do
    if "$candidate" - >/dev/null 2>&1 <<'PYTHON'; then
import ensurepip, os, sys, sysconfig, venv
sys.exit(not (sys.version_info >= (3, 10) and os.path.exists(sysconfig.get_path("include") + "/Python.h")))
PYTHON
      "$candidate" -c 'import sys; print(sys.executable)'
      return 0
    fi
  done
  return 1
}

packages_of_build() {
  command -v g++ >/dev/null || echo g++
  [[ -x "$env_dir/bin/python" ]] || find_python >/dev/null || echo python3-dev python3-venv
  find_header jpeglib.h || echo libjpeg-dev
  find_header xxhash.h || echo libxxhash-dev
  find_header nlohmann/json.hpp || echo nlohmann-json3-dev
  find_header hwloc.h || echo libhwloc-dev
  command -v ccache >/dev/null || echo ccache
  command -v pkg-config >/dev/null || echo pkg-config
}

packages_of_all() {
  find_header gtest/gtest.h || echo libgtest-dev
  find_header png.h || echo libpng-dev
  find_header webp/decode.h || echo libwebp-dev
  command -v ip >/dev/null || [[ -x /usr/sbin/ip ]] || echo iproute2
}

missing_packages() {
  packages_of_build
  if [[ "$1" == all ]]; then packages_of_all; fi
}

set_up_packages() {
  local missing
  missing="$(missing_packages "$1" | tr '\n' ' ')"
  missing="${missing% }"
  [[ -n "$missing" ]] || return 0
  command -v apt-get >/dev/null ||
    die "this machine lacks $missing (Debian's names) and has no apt-get; install them and run ./dev again"
  local as_root=()
  if [[ "$(id -u)" != 0 ]]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      die "packages are missing; as root, run:
    apt-get update && apt-get install -y --no-install-recommends $missing"
    fi
  fi
  say "installing $missing"
  # shellcheck disable=SC2086
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update -qq && \
    apt-get install -y -qq --no-install-recommends $missing" >&2 || die "apt-get could not install $missing"
  missing="$(missing_packages "$1" | tr '\n' ' ')"
  [[ -z "${missing// /}" ]] || die "still missing after apt-get: $missing"
}

# Optional: tests skip without them. spin checks the model of the store's protocol; fuse3 mounts stores; gfortran compiles
# programs for the preload library. Tried once per build folder.
set_up_optional_packages() {
  local stamp="$PENSTOCK_ROOT/build/.optional-packages" wanted=()
  [[ -e "$stamp" ]] && return 0
  mkdir -p "$PENSTOCK_ROOT/build" && touch "$stamp"
  command -v spin >/dev/null || wanted+=(spin)
  command -v fusermount3 >/dev/null || wanted+=(fuse3)
  command -v gfortran >/dev/null || wanted+=(gfortran)
  if [[ ${#wanted[@]} == 0 || "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then return 0; fi
  say "installing ${wanted[*]}, which some tests use"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >&2 ||
    say "${wanted[*]} could not be installed; their tests are skipped"
}

# --- Python and MPI ----------------------------------------------------------------------------------------------

set_up_venv() {
  [[ -x "$env_dir/bin/penstock" ]] && return 0
  local python
  python="$(find_python)" || die "no python3 (3.10 or newer) with venv and headers was found"
  say "Python environment in build/env ($("$python" --version))"
  [[ -x "$env_dir/bin/python" ]] || "$python" -m venv "$env_dir"
  # The `penstock` command of the package built here.
  printf '#!/bin/sh\nexec python -m penstock "$@"\n' >"$env_dir/bin/penstock"
  chmod +x "$env_dir/bin/penstock"
}

# pip_install WHAT OPTION…: without compiling to bytecode, which imports do on first use.
pip_install() {
  "$env_dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "${@:2}" >&2 ||
    die "pip could not install $1"
}

# set_up_python FILE [OPTION…]: installs the packages of a file of scripts/ into build/env.
set_up_python() {
  local file="$scripts/$1" stamp="$env_dir/.$1"
  cmp -s "$file" "$stamp" && return 0
  say "Python packages of scripts/$1 in build/env"
  pip_install "$file" "${@:2}" -r "$file"
  cp "$file" "$stamp"
}

# set_up_mpi NAME…: installs MPIs of scripts/requirements-mpi.txt, each into its own prefix.
set_up_mpi() {
  local name requirement version
  for name in "$@"; do
    requirement="$(grep "^$name==" "$scripts/requirements-mpi.txt")" || continue # enter_environment says what there is
    version="${requirement##*==}"
    compgen -G "$mpi_dir/$name/lib/python*/site-packages/$name-$version.dist-info/RECORD" >/dev/null && continue
    say "MPI: $requirement in build/mpi/$name"
    rm -rf "${mpi_dir:?}/$name"
    pip_install "$requirement" --no-deps --ignore-installed --no-warn-script-location --prefix "$mpi_dir/$name" \
      "$requirement"
  done
}

# set_up [build|demo|all]: the sets are listed at the top of this file. A lock keeps concurrent commands from installing at the
# same time.
set_up() {
  local level="${1:-all}" mpis=("${PENSTOCK_MPI:-mpich}") mpi_installer
  mkdir -p "$PENSTOCK_ROOT/build"
  exec 9>"$PENSTOCK_ROOT/build/.setup.lock"
  if command -v flock >/dev/null; then flock 9; fi
  set_up_packages "$level"
  set_up_venv
  if [[ "$level" == all ]]; then
    mapfile -t mpis < <(sed -n 's/==.*//p' "$scripts/requirements-mpi.txt")
    set_up_optional_packages
  fi
  set_up_mpi "${mpis[@]}" &
  mpi_installer=$!
  set_up_python requirements-build.txt
  if [[ "$level" != build ]]; then set_up_python requirements-demo.txt; fi
  if [[ "$level" == all ]]; then set_up_python requirements.txt; fi
  # Last: pip warns in each later call that these packages lack dependencies.
  if [[ "$level" != build ]]; then set_up_python requirements-data.txt --no-deps; fi
  wait "$mpi_installer" || exit 1
  exec 9>&-
}

set_up_intel_mpi() {
  [[ ! -x "$mpi_dir/impi/bin/mpiexec" ]] || return 0
  say "Intel MPI, under the Intel Simplified Software License, in build/mpi/impi"
  pip_install impi-rt --no-deps --ignore-installed --no-warn-script-location --prefix "$mpi_dir/impi" impi-rt==2021.19.0
}

# A virtual environment that sees the packages of build/env.
make_environment_beside() {
  local own purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
  "$env_dir/bin/python" -m venv "$1"
  own="$("$1/bin/python" -c "$purelib")"
  "$env_dir/bin/python" -c "$purelib" >"$own/penstock-env.pth"
}

# PyTorch and JAX in their own virtual environment, build/torch-env, which sees the packages of build/env. pip's own configuration
# decides which build of PyTorch it is: without an index of CPU builds, that for GPUs, gigabytes of it.
set_up_torch() {
  local torch_env="$PENSTOCK_ROOT/build/torch-env"
  "$torch_env/bin/python" -c 'import torch, jax' >/dev/null 2>&1 && return 0
  say "PyTorch and JAX for CPUs in build/torch-env"
  make_environment_beside "$torch_env"
  "$torch_env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 expecttest >&2 ||
    die "pip could not install torch==2.13.0"
  "$torch_env/bin/python" -m pip install --quiet --disable-pip-version-check jax orbax-checkpoint >&2 ||
    say "JAX and Orbax could not be installed; their tests are skipped"
}

# The generator of the documentation site, in its own virtual environment, which sees the packages of build/env.
set_up_docs() {
  local docs_env="$PENSTOCK_ROOT/build/docs-env" file="$scripts/requirements-docs.txt"
  cmp -s "$file" "$docs_env/.requirements" && return 0
  say "the documentation's generator in build/docs-env"
  make_environment_beside "$docs_env"
  "$docs_env/bin/python" -m pip install --quiet --disable-pip-version-check -r "$file" >&2 ||
    die "pip could not install scripts/requirements-docs.txt"
  cp "$file" "$docs_env/.requirements"
}

# A client and a server of S3 for tests, in their own virtual environment, which sees the packages of build/env.
set_up_s3() {
  local s3_env="$PENSTOCK_ROOT/build/s3-env"
  "$s3_env/bin/python" -c 'import s3fs, moto.server, obstore' >/dev/null 2>&1 && return 0
  say "s3fs, obstore and moto in build/s3-env"
  make_environment_beside "$s3_env"
  "$s3_env/bin/python" -m pip install --quiet --disable-pip-version-check s3fs obstore 'moto[server]' >&2 ||
    die "pip could not install s3fs, obstore and moto[server]"
}

# What puts a wheel's libraries into it, in its own virtual environment.
set_up_wheel() {
  local wheel_env="$PENSTOCK_ROOT/build/wheel-env" file="$scripts/requirements-wheel.txt"
  cmp -s "$file" "$wheel_env/.requirements" && return 0
  "$env_dir/bin/python" -m venv "$wheel_env"
  "$wheel_env/bin/python" -m pip install --quiet --disable-pip-version-check -r "$file" >&2 ||
    die "pip could not install scripts/requirements-wheel.txt"
  cp "$file" "$wheel_env/.requirements"
}

# What checks the recipes of packaging/, in its own virtual environment.
set_up_recipes() {
  local recipe_env="$PENSTOCK_ROOT/build/recipe-env" file="$scripts/requirements-recipes.txt"
  cmp -s "$file" "$recipe_env/.requirements" && return 0
  say "the checkers of recipes in build/recipe-env"
  "$env_dir/bin/python" -m venv "$recipe_env"
  "$recipe_env/bin/python" -m pip install --quiet --disable-pip-version-check -r "$file" >&2 ||
    die "pip could not install scripts/requirements-recipes.txt"
  cp "$file" "$recipe_env/.requirements"
}

# Optional: tests skip without them. impi-rt, torch, s3fs, recipes, or Debian packages.
set_up_more() {
  local package
  for package in "$@"; do
    if [[ "$package" == impi-rt ]]; then
      set_up_intel_mpi
    elif [[ "$package" == torch ]]; then
      set_up_torch
    elif [[ "$package" == s3fs ]]; then
      set_up_s3
    elif [[ "$package" == recipes ]]; then
      set_up_recipes
    elif ! dpkg-query -W "$package" >/dev/null 2>&1; then
      [[ "$(id -u)" == 0 ]] || die "installing $package takes root"
      say "installing $package"
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 ||
        die "apt-get could not install $package"
    fi
  done
}

# --- The environment that programs run in ------------------------------------------------------------------------

# without PREFIX LIST: the entries of a colon-separated list that are not under PREFIX.
without() {
  local entry kept=""
  while IFS= read -r -d: entry; do
    [[ -z "$entry" || "$entry" == "$1"/* ]] || kept+="${kept:+:}$entry"
  done <<<"$2:"
  printf '%s' "$kept"
}

# PENSTOCK_MPI=mpich|openmpi selects the MPI; PENSTOCK_BUILD selects the build tree of the Python package.
enter_environment() {
  local mpi="${PENSTOCK_MPI:-mpich}" prefix
  prefix="$mpi_dir/$mpi"
  [[ -x "$prefix/bin/mpiexec" ]] ||
    die "PENSTOCK_MPI is '$mpi', expected one of: $(cd "$mpi_dir" && echo *)"
  export PENSTOCK_MPI="$mpi"
  export PENSTOCK_BUILD="${PENSTOCK_BUILD:-$PENSTOCK_ROOT/build/release}"
  export VIRTUAL_ENV="$env_dir"
  # Remove what an outer ./dev exec has set: two MPIs in one environment conflict.
  PATH="$env_dir/bin:$prefix/bin:$(without "$PENSTOCK_ROOT/build" "$PATH")"
  LD_LIBRARY_PATH="$prefix/lib:$(without "$PENSTOCK_ROOT/build" "${LD_LIBRARY_PATH:-}")"
  PYTHONPATH="$PENSTOCK_BUILD/python:$(without "$PENSTOCK_ROOT/build" "${PYTHONPATH:-}")"
  export PATH="${PATH%:}" LD_LIBRARY_PATH="${LD_LIBRARY_PATH%:}" PYTHONPATH="${PYTHONPATH%:}"
  export MPI4PY_MPIABI="${mpi/#impi*/mpich}"
  export PYTHONUNBUFFERED=1
  # Share the compiler cache between clones of the repository and its wheel: same compiler names, relative paths.
  export CC="${CC:-cc}" CXX="${CXX:-c++}"
  export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PENSTOCK_ROOT}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
  unset PYTHONHOME
  # On a developer's machine ranks usually outnumber cores.
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-slot:oversubscribe}"
  export PRTE_MCA_hwloc_default_binding_policy="${PRTE_MCA_hwloc_default_binding_policy:-none}"
  export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
}

# build_preset PRESET [TARGET…]: builds; configures before if the tree is new, the presets changed, or an MPI, GoogleTest or
# SimGrid was installed.
build_preset() {
  local preset="$1" tree="$PENSTOCK_ROOT/build/$1" options=() found
  shift
  if find_header gtest/gtest.h; then options=(-DPENSTOCK_TESTS=ON); fi
  found="${options[*]} $(cd "$mpi_dir" && echo *)"
  if find_header simgrid/s4u.hpp; then found+=" simgrid"; fi
  if [[ ! -e "$tree/build.ninja" || "$PENSTOCK_ROOT/CMakePresets.json" -nt "$tree/CMakeCache.txt" ||
    "$(cat "$tree/.configured" 2>/dev/null)" != "$found" ]]; then
    (cd "$PENSTOCK_ROOT" && cmake --preset "$preset" "${options[@]}" >"$tree.configure.log" 2>&1) || {
      cat "$tree.configure.log" >&2
      die "cmake could not configure the preset '$preset'"
    }
    printf '%s\n' "$found" >"$tree/.configured"
  fi
  local targets=()
  [[ $# == 0 ]] || targets=(--target "$@")
  cmake --build "$tree" "${targets[@]}" >&2 || die "the build of '$preset' failed"
  if [[ $# == 0 || "$1" == penstock_programs ]]; then touch "$tree/.built"; fi
}
