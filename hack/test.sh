#!/usr/bin/env bash
# Runs all tests in this order: quick tests; tests on a real control plane, which mostly wait, side
# by side; benchmarks one by one, because they share two cores. The three packages with most live
# tests run in SPOT_SHARDS processes each (2 by default), which have control planes of their own.
# UNIT=1 runs only the quick tests, which start no control plane, and accepts cached results of the
# product's tests.
# LONG=1 adds slow tests: the race detector; many more random histories; three runs of the live
# tests that depend most on timing; live tests with many repetitions or full size; live tests with
# the controllers of other projects; the CPU time with a large tenant; extender tests; the placement
# tests through the extender; and the placement and eviction tests against the next minor version of
# Kubernetes.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(go list ./... ./hack/... ./test/...)
alone=$(grep -E '/(test/performance|test/performance/micro)$' <<<"$packages")
long=$(grep -E '/(test/controller|test/integration)$' <<<"$packages")
waiting=$(grep -E '/(test/lab|test/lab/demo|test/audit|test/autoscaler|test/chart|test/kubectl|test/monitoring|test/performance/memory|test/rbac|test/spot-lab)$' <<<"$packages")
quick=$(grep -vE '/(test/extender|test/performance/tenant|test/performance/upstream/harness)$' <<<"$packages" | grep -vxF -e "$alone" -e "$long" -e "$waiting")

if [ -n "${UNIT:-}" ]; then
  go test $(grep -vE '/(hack|test)/' <<<"$quick")
  # Go would repeat an old result although files of another module have changed.
  go test -count=1 $(grep -E '/(hack|test)/' <<<"$quick")
  exit
fi

failed=()
# step runs a command. After a failure the other steps still run, so that one run shows all
# failures. The script then ends with an error.
step() {
  local began=$SECONDS
  "$@" || failed+=("$*")
  echo "step of $((SECONDS - began)) s: $*"
}

hack/prometheus.sh
step go test -count=1 $quick
export SPOT_SHARDS=${SPOT_SHARDS:-2}
# These live tests use both cores, or compare times and require that the load does not change
# meanwhile. They run one after the other.
busy='^(TestAlertsFire|TestDeletedNodes|TestGateWebhook|TestMassReclaim|TestPauseDuringMassReclaim|TestPlacementManyDeployments|TestReplacementsWithoutRoomArePending|TestResourceRequests)$'
step go test -count=1 -p 3 -timeout 40m -skip "$busy" $long $waiting
step env SPOT_SHARDS=1 go test -count=1 -p 1 -timeout 20m -run "$busy" $long ./test/autoscaler ./test/monitoring
step go test -count=1 -p 1 $alone
if [ -n "${LONG:-}" ]; then
  # The race detector requires a C compiler.
  step env CGO_ENABLED=1 go test -count=1 -race ./pkg/decision/... ./pkg/node/... ./pkg/workload/... ./pkg/transform/... ./pkg/providers/... ./pkg/plugins/... ./pkg/apis/...
  step go test -count=1 ./pkg/decision ./pkg/placement ./pkg/node ./pkg/simulation -rapid.checks=20000
  step go test -count=1 ./pkg/controller/safety -run TestLimitsHold -rapid.checks=10000
  step go test -count=3 -timeout 40m -run 'TestWaitingPodWakes|TestFallback|TestSchedulerKilledDuringPlacement' ./test/integration
  # Karpenter with 100 workloads, half an hour of changes to workloads, drains, and spot that is not
  # available. Each test uses about a third of a core.
  step env SPOT_SHARDS=3 go test -count=1 -tags long -timeout 60m -run '^TestLong' -skip '^TestLongMassReclaim' ./test/autoscaler
  # 20 killed controllers, five minutes of spot nodes that are reclaimed and replaced, drains by
  # kubectl, and five killed schedulers.
  step env SPOT_SHARDS=2 go test -count=1 -p 1 -tags long -timeout 60m -run '^TestLong' -skip '^TestLongMassReclaim' ./test/controller ./test/integration
  # A reclaim of 300 nodes at once, a reclaim of all spot with Karpenter, applications that opt in
  # with assess, and kubectl spot with 5,000 nodes and 50,000 pods. These tests use both cores.
  step env SPOT_SHARDS=1 go test -count=1 -p 1 -tags long -timeout 60m -run '^(TestLongMassReclaim|TestLongScale|TestLongOptIn)' ./test/autoscaler ./test/controller ./test/kubectl
  # Argo Rollouts and Kueue, and the owners of Kruise by hand.
  step hack/tools.sh controllers
  step go test -count=1 -tags long -timeout 20m ./test/owners
  step go test -count=1 ./test/performance/tenant
  step go test -count=1 ./test/extender
  step hack/test-extender.sh
  step env PARTS="placement busy evictions" hack/test-skew.sh
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
