#!/usr/bin/env bash
# [--all] : remove build trees but keep the environment; --all removes build/ altogether
set -euo pipefail
source "$PENSTOCK_ROOT/scripts/environment.sh"
cd "$PENSTOCK_ROOT"
if [[ -e build/cluster ]]; then bash "$PENSTOCK_ROOT/scripts/commands/cluster.sh" down; fi
case "${1:-}" in
  --all) rm -rf build ;;
  "") find build -mindepth 1 -maxdepth 1 ! -name env ! -name mpi ! -name .setup.lock -exec rm -rf {} + 2>/dev/null || true ;;
  *) die "clean: unknown option '$1'; known: --all" ;;
esac
