#!/usr/bin/env bash
# Runs all tests: the quick ones first, then those on a real control plane, one package after the other because they share two
# cores and have limits of seconds. LONG=1 adds what takes longer: more tests (build tag long) and the race detector.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(go list ./...)
live=$(grep -E '/(pkg/lab|pkg/lab/demo|test/audit|test/integration)$' <<<"$packages")
quick=$(grep -vxF "$live" <<<"$packages")
tags=()
[ -n "${LONG:-}" ] && tags=(-tags long)

go test -count=1 "${tags[@]}" $quick
if [ -n "${LONG:-}" ]; then
  # The race detector needs a C compiler.
  CGO_ENABLED=1 go test -count=1 -race ./pkg/decision/... ./pkg/kube/... ./pkg/plugins/... ./pkg/apis/...
fi
go test -count=1 -p 1 -timeout 40m "${tags[@]}" $live
