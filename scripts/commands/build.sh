#!/usr/bin/env bash
# [PRESET] [TARGET…] : build C++ and Python into build/PRESET: release (the default), dev, asan or tsan
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
preset="${1:-release}"
shift || true
set_up
unset PENSTOCK_BUILD
enter_environment
build_preset "$preset" "$@"
say "built: build/$preset"
