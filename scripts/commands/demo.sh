#!/usr/bin/env bash
# [OPTION…] : a training run that uses all five parts; prints a table, writes demo-report.html (--help: options)
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
set_up build
enter_environment
set_up demo & # while the compiler runs
build_preset release penstock_programs
wait $!
exec python "$PENSTOCK_ROOT/demo/main.py" "$@"
