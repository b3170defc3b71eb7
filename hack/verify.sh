#!/usr/bin/env bash
# Checks everything that can be checked without running the product, and says what to do about each finding.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
check() { # what to do about it, command...
  local remedy=$1 out
  shift
  # A finding is a failure or something on standard output. Standard error also tells of modules being downloaded.
  if ! out=$("$@" 2>"$errors") || [ -n "$out" ]; then
    printf 'verify: %s\n%s\n%s\n  remedy: %s\n' "$*" "$out" "$(cat "$errors")" "$remedy" >&2
    failed=1
  fi
}
check "gofmt -w ." gofmt -l cmd hack pkg test
check "go mod tidy" go mod tidy -diff
check "go mod tidy in hack/tools" env -C hack/tools go mod tidy -diff
check "go mod tidy in hack/karpenter" env -C hack/karpenter go mod tidy -diff
check "go mod tidy in hack/kubernetes-1.37" env -C hack/kubernetes-1.37 go mod tidy -diff
check "go mod tidy in test/performance/upstream" env -C test/performance/upstream go mod tidy -diff
check "mend what it names" go vet ./...
check "mend what it names" .local/bin/staticcheck ./...
check "mend what it names" env -C test/performance/upstream go vet ./...
check "mend what it names" env -C test/performance/upstream "$PWD/.local/bin/staticcheck" ./...
# What only a real node can run.
check "mend what it names" go vet -tags node ./test/node
check "mend what it names" .local/bin/staticcheck -tags node ./test/node
# What only make test-long runs.
check "mend what it names" go vet -tags long ./test/autoscaler ./test/controller ./test/kubectl
check "mend what it names" .local/bin/staticcheck -tags long ./test/autoscaler ./test/controller ./test/kubectl
# What only make test-skew runs.
check "mend what it names" go vet -tags skew ./test/controller
check "mend what it names" .local/bin/staticcheck -tags skew ./test/controller

generated() { # says what differs from what hack/generate.sh makes
  local made status
  made=$(mktemp -d)
  hack/generate.sh "$made" && diff "$made/manifests/overlays/gang/podgroups.yaml" manifests/overlays/gang/podgroups.yaml
  status=$?
  rm -r "$made"
  return $status
}
check "make generate" generated

built() { # kustomization: says so when it builds to nothing
  local objects
  objects=$(.local/bin/kubectl kustomize "$1") || return
  grep -q '^kind: ' <<<"$objects" || echo "builds to no object"
}
while read -r file; do
  check "mend the manifests" built "$(dirname "$file")"
done < <(find config manifests -name kustomization.yaml)
[ $failed = 0 ] && echo "verify: all well"
exit $failed
