#!/usr/bin/env bash
# Runs all tests: the quick ones first, then those that run on a real control plane and mostly wait, two packages at a time, the long ones
# beside each other, and then those that measure, one after the other because they share two cores. LONG=1 adds what takes longer: the race
# detector, many more random histories, and the live tests that depend most on timing three times over, those with many repeats or a full
# size, those of the extender, and those of placement against the next minor version of Kubernetes.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(go list ./...)
alone=$(grep -E '/(test/performance|test/performance/micro)$' <<<"$packages")
long=$(grep -E '/(test/controller|test/integration)$' <<<"$packages")
waiting=$(grep -E '/(pkg/lab|pkg/lab/demo|test/audit|test/autoscaler|test/kubectl|test/monitoring|test/performance/memory|test/rbac)$' <<<"$packages")
quick=$(grep -vE '/test/extender$' <<<"$packages" | grep -vxF -e "$alone" -e "$long" -e "$waiting")

hack/prometheus.sh
go test -count=1 $quick
env -C test/performance/upstream go test -count=1 .
go test -count=1 -p 2 $waiting
go test -count=1 -p 2 -timeout 40m $long
go test -count=1 -p 1 $alone
if [ -n "${LONG:-}" ]; then
  # The race detector needs a C compiler.
  CGO_ENABLED=1 go test -count=1 -race ./pkg/decision/... ./pkg/kube/... ./pkg/plugins/... ./pkg/apis/...
  go test -count=1 ./pkg/decision ./pkg/plugins/placement ./pkg/apis/config -rapid.checks=20000
  go test -count=3 -timeout 40m -run 'TestWaitingPodWakes|TestFallback|TestKilledWhilePlacing' ./test/integration
  # A reclaim of 300 nodes at once, 20 killed controllers, and spot that comes and goes for five minutes; five killed schedulers; kubectl spot
  # on 5,000 nodes and 50,000 pods; Karpenter beside 100 workloads, and half an hour of churn; nodes that Karpenter and kubectl drain.
  go test -count=1 -p 1 -tags long -timeout 120m -run '^TestLong' ./test/autoscaler ./test/controller ./test/integration ./test/kubectl
  go test -count=1 ./test/extender
  # Placement once more, by a stock kube-scheduler that asks the extender: what needs neither preemption nor a pod that is woken in time.
  SPOT_THROUGH=extender go test -count=1 -timeout 20m -run '^(TestSingletonsStandOnOnDemand|TestFloorThenSpot|TestOnDemandFull|TestSpotFull|TestNothingFree|TestJobs|TestKnobsOfAWorkload|TestNodesWithoutAnyLabel|TestConfiguredNodes|TestOwners|TestRules|TestAnnotationPolicy|TestScale|TestManyDeploymentsAtOnce|TestSignalledNodesTakeNoPods|TestAdvisedNodesAreUsedLast|TestStatefulSetKeepsItsFirstOrdinalsOffSpot|TestPodRightAfterItsOwner|TestRolloutsWithRoomToSpare|TestExampleWorkloads)$' ./test/integration
  hack/test-skew.sh
fi
