#!/usr/bin/env bash
# Runs the tests of placement against the API server and the controller manager of the minor version after the scheduler's, and says
# which they were and how many tests passed. Builds both when they are missing (minutes). RUN limits it to tests that match.
set -euo pipefail
cd "$(dirname "$0")/.."
minor=1.37
hack/tools.sh $minor
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# TestBadConfiguration is about starts without any API server.
if ! SPOT_KUBERNETES=$minor go test -count=1 -v -timeout 40m -run "${RUN:-.}" -skip '^TestBadConfiguration$' ./test/integration \
  >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
passed=$(grep -c '^--- PASS' "$log") || { echo "skew: no test was run" >&2; exit 1; }
echo "skew: $(grep -m1 '^API server v' "$log"), $passed tests passed, $(grep -c '^ *--- PASS' "$log") with their parts"
