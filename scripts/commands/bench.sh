#!/usr/bin/env bash
# [NAME] [OPTION…] : benchmarks side by side with the peers, the same as `penstock bench` (--help: names and options)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
set_up
enter_environment
build_preset release penstock_programs
exec penstock bench "$@"
