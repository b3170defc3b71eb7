#!/usr/bin/env bash
# Compares the shipped profile with kube-scheduler's default one on the workloads of Kubernetes' own benchmark, scheduler_perf. ROUNDS
# is how often each runs, WORKLOADS limits it to test cases that match, and SIZE runs the sizes that match instead of one of each. All of
# them pass, without being measured, in two minutes: ROUNDS=1 SIZE='^(5|10)Nodes.*HintsEnabled'
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
env -C test/performance/upstream go test -c -o "$bin/bench-upstream-harness" ./harness
env -C test/performance/upstream go build -o "$bin/bench-upstream" .

# scheduler_perf runs the etcd that it finds, and its API server looks for its certificates where these say when paths are trimmed.
export PATH=$PWD/.local/bin:$PATH TEST_SRCDIR=$(go env GOMODCACHE) TEST_WORKSPACE=.
# In the place of this script, so that who ends it ends all that it has started.
exec "$bin/bench-upstream" -harness "$bin/bench-upstream-harness" -config config/scheduler-config.yaml \
  -kubernetes "$(env -C test/performance/upstream go list -m -f '{{.Dir}}' k8s.io/kubernetes)" \
  ${ROUNDS:+-rounds "$ROUNDS"} ${WORKLOADS:+-workloads "$WORKLOADS"} ${SIZE:+-size "$SIZE"}
