#!/usr/bin/env bash
# Runs the tests TestPlacement… of test/integration with a stock kube-scheduler that calls the
# extender. They require neither preemption nor the wake-up of a pod. Fails unless exactly the
# expected number of tests has passed, so that a renamed or skipped test is not lost.
set -euo pipefail
cd "$(dirname "$0")/.."
expected=19
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! SPOT_THROUGH=extender go test -count=1 -v -timeout 20m -run '^TestPlacement' ./test/integration >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
passed=$(grep -c '^--- PASS: TestPlacement' "$log" || true)
if [ "$passed" != $expected ]; then
  cat "$log"
  echo "extender: $passed placement tests passed, want $expected. After adding or removing a test, change the number in $0" >&2
  exit 1
fi
echo "extender: $passed placement tests passed"
