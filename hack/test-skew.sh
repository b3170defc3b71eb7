#!/usr/bin/env bash
# Runs the live tests against the control plane of a minor version of Kubernetes. Prints the numbers
# of passed, failed and skipped tests of each part. Builds the control plane if it is missing
# (minutes).
#
#	MINOR  1.34, 1.35, 1.36 or 1.37 (default)
#	PARTS  the parts to run; by default all that the version supports
#	RUN    a regular expression; runs these tests instead of the usual tests of PARTS
set -uo pipefail
cd "$(dirname "$0")/.."
minor=${MINOR:-1.37}
all="placement busy controller policies chart kubectl autoscaler extender"
case $minor in
  1.34) all=${all% extender} ;; # its kube-scheduler is too old for the extender (docs/design/extender.md)
  1.35 | 1.36 | 1.37) ;;
  *) echo "skew: MINOR=$minor, expected 1.34, 1.35, 1.36 or 1.37" >&2; exit 2 ;;
esac
if [ -n "${RUN:-}" ] && [ -z "${PARTS:-}" ]; then
  echo "skew: RUN=$RUN without PARTS, expected the parts that contain these tests" >&2
  exit 2
fi
export SPOT_KUBERNETES=$minor SPOT_SHARDS=${SPOT_SHARDS:-3}

programs=.local/bin/$minor
if [ "$minor" = 1.36 ]; then programs=.local/bin; fi
hack/tools.sh "$minor" || exit
version=$("$programs/kube-apiserver" --version | cut -d' ' -f2)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
report() { echo "skew: Kubernetes $version, $part: $1"; }

# tests runs the tests of a package, except those in skip, and prints how many tests passed.
tests() { # package, regular expression, flags of go test...
  local package=$1 selected=$2 passed status=0
  shift 2
  if [ -n "${RUN:-}" ]; then skip=; fi
  go test -count=1 -v -timeout 40m -run "${RUN:-$selected}" -skip "${skip:-^$}" "$@" "$package" >"$log" 2>&1 || status=1
  passed=$(grep -c '^--- PASS' "$log")
  if [ $status != 0 ] || [ "$passed" = 0 ]; then cat "$log"; failed=1; fi
  report "$passed tests passed, $(grep -c '^--- FAIL' "$log") failed, $(grep -c '^--- SKIP' "$log") skipped"
  grep -E '^--- (FAIL|SKIP)' "$log"
}

# Tests that use both cores. They run one after the other.
busy='^(TestMassReclaim|TestPlacementManyDeployments|TestReplacementsWithoutRoomArePending|TestResourceRequests)$'
for part in ${PARTS:-$all}; do
  skip=
  case $part in
    # TestBadConfiguration starts the scheduler without an API server.
    placement) skip="$busy|^TestBadConfiguration$" tests ./test/integration . ;;
    controller) skip=$busy tests ./test/controller . ;;
    busy) SPOT_SHARDS=1 tests ./test/integration "$busy"; SPOT_SHARDS=1 tests ./test/controller "$busy" ;;
    policies) tests ./test/rbac 'Polic|May|CannotMark' ;;
    chart) tests ./test/chart '^TestRelease$' ;;
    kubectl) tests ./test/kubectl . ;;
    autoscaler) tests ./test/autoscaler . ;;
    extender) hack/test-extender.sh | sed "s/^extender/skew: Kubernetes $version, extender/" || failed=1 ;;
    *) echo "skew: PARTS contains $part, expected: $all" >&2; exit 2 ;;
  esac
done
exit $failed
