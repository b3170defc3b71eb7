#!/usr/bin/env bash
# Runs the tests of placement against the API server and the controller manager of the minor version after the scheduler's, and those of the
# controller that need APIs of that version. Says which they were and how many tests passed. Builds both when they are missing (minutes). RUN
# limits the tests of placement to those that match.
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
# TestBadConfiguration is about starts without any API server.
run ./test/integration -run "${RUN:-.}" -skip '^TestBadConfiguration$'
# What needs APIs of that version.
run ./test/controller -tags skew -run '^TestEvictionRequest'
