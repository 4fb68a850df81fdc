#!/usr/bin/env bash
# [serve] : build the documentation site into build/site and manual pages into build/man; serve the site, too
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$PENSTOCK_ROOT/scripts/environment.sh"
answer_help "$@"
set_up
enter_environment
set_up_docs
build_preset release _penstock
export NO_MKDOCS_2_WARNING=1
cd "$PENSTOCK_ROOT"
if [[ "${1:-}" == serve ]]; then
  exec "$PENSTOCK_ROOT/build/docs-env/bin/python" -m mkdocs serve -f scripts/docs/mkdocs.yml
fi
"$PENSTOCK_ROOT/build/docs-env/bin/python" -m mkdocs build --strict -f scripts/docs/mkdocs.yml
"$PENSTOCK_ROOT/build/docs-env/bin/python" scripts/docs/man.py build/man/man1
say "documentation: build/site/index.html, build/man (man -M build/man penstock)"
