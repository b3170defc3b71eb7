#!/usr/bin/env bash
# Compares the shipped profile with kube-scheduler's default profile on the workloads of Kubernetes'
# own benchmark, scheduler_perf. ROUNDS is the number of runs. WORKLOADS selects test cases by a
# regular expression. SIZE selects sizes by a regular expression, instead of one size per workload.
# To run all workloads without measurement in two minutes: ROUNDS=1
# SIZE='^(5|10)Nodes.*HintsEnabled'
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
go test -c -o "$bin/bench-upstream-harness" ./test/performance/upstream/harness
go build -o "$bin/bench-upstream" ./test/performance/upstream

# scheduler_perf runs the etcd that it finds on PATH. With trimmed paths, its API server needs these
# variables to find its certificates.
export PATH=$PWD/.local/bin:$PATH TEST_SRCDIR=$(go env GOMODCACHE) TEST_WORKSPACE=.
# exec replaces this script, so a signal to it ends the benchmark and its children.
exec "$bin/bench-upstream" -harness "$bin/bench-upstream-harness" -config config/scheduler-config.yaml \
  -kubernetes "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" \
  ${ROUNDS:+-rounds "$ROUNDS"} ${WORKLOADS:+-workloads "$WORKLOADS"} ${SIZE:+-size "$SIZE"}
