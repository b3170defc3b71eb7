#!/usr/bin/env bash
# Runs the placement tests against the API server and the controller manager of the minor version
# after the scheduler's, and the controller tests that need APIs of that version. Prints the
# versions and the numbers of passed tests. Builds both programs if they are missing (minutes). RUN
# selects placement tests by a regular expression.
set -euo pipefail
cd "$(dirname "$0")/.."
minor=1.37
hack/tools.sh $minor
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { # package, go test flags...
  local package=$1 passed
  shift
  if ! SPOT_KUBERNETES=$minor go test -count=1 -v -timeout 40m "$@" "$package" >"$log" 2>&1; then
    cat "$log"
    exit 1
  fi
  passed=$(grep -c '^--- PASS' "$log") || { echo "skew: no test of $package was run" >&2; exit 1; }
  echo "skew: $(grep -m1 '^API server v' "$log"), $package: $passed tests passed, $(grep -c '^ *--- PASS' "$log") with their parts"
}
# TestBadConfiguration starts the scheduler without an API server.
run ./test/integration -run "${RUN:-.}" -skip '^TestBadConfiguration$'
# These tests need APIs of that version.
run ./test/controller -tags skew -run '^TestEvictionRequest'
