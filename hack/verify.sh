#!/usr/bin/env bash
# Runs all checks that do not run the product, and prints a remedy for each finding.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
check() { # remedy, command...
  local remedy=$1 out
  shift
  # A check fails if the command fails or prints to standard output. Standard error also contains
  # messages about module downloads.
  if ! out=$("$@" 2>"$errors") || [ -n "$out" ]; then
    printf 'verify: %s\n%s\n%s\n  remedy: %s\n' "$*" "$out" "$(cat "$errors")" "$remedy" >&2
    failed=1
  fi
}
check "gofmt -w ." gofmt -l cmd hack pkg test
for module in . hack test hack/{tools,helm,helm3,golangci-lint,helm-docs,crd-ref-docs,karpenter,argo-rollouts,kueue,kubernetes-*}; do
  check "go mod tidy in $module" env -C "$module" go mod tidy -diff
done

used() { # packages...; prints the modules of the packages and their versions
  go list -deps -f '{{with .Module}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}' "$@" | sort -u
}
# The control plane and the product share compiled packages only if the modules have the same
# versions. Otherwise a cold make demo compiles most of Kubernetes twice.
equal() {
  local tools
  # hack/tools is not in go.work, which would replace the versions in its go.mod.
  tools=$(cd hack/tools && GOWORK=off used k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler}) || return
  used ./cmd/... | awk 'NR == FNR { version[$1] = $2; next } $1 in version && version[$1] != $2 { print $1, $2, "in go.mod,", version[$1], "in hack/tools/go.mod" }' <(echo "$tools") -
}
check "require the same version in both go.mod files" equal
# Releases build the product from its own module. They have the tested versions, and share compiled
# packages with the tests, only if the other modules raise no version.
alone() { diff <(GOWORK=off used ./cmd/...) <(used ./cmd/...); }
check "go work sync, then go mod tidy in each module" alone
# One run with all build tags, so that it also covers the tests of make test-long, make test-node
# and make test-skew. golangci-lint prints "0 issues." to standard output.
lint() { .local/bin/golangci-lint run --output.text.path stderr --show-stats=false ./... ./hack/... ./test/...; }
check "fix the reported problems; .golangci.yaml lists the linters" lint

check "write the English of the Kubernetes documentation (CONTRIBUTING.md)" hack/english.sh
check "remove code, or raise the number in hack/lines.txt and name there what you removed for it" hack/lines.sh

chart=manifests/charts/spot-aware-scheduler
generated() { # prints the differences from the result of hack/generate.sh
  local made status file
  made=$(mktemp -d)
  hack/generate.sh "$made"
  status=$?
  while read -r file; do
    diff "$made/$file" "$file" || status=1
  done < <(cd "$made" && find docs manifests pkg -type f)
  # A file without a manifest must not stay in the chart.
  diff -r "$made/$chart/files" "$chart/files" || status=1
  rm -r "$made"
  return $status
}
check "make generate" generated

built() { # kustomization; prints a message if it has no objects
  local objects
  objects=$(.local/bin/kubectl kustomize "$1") || return
  grep -q '^kind: ' <<<"$objects" || echo "builds to no object"
}
# Components are built with the overlays that use them.
while read -r file; do
  check "fix the manifests" built "$(dirname "$file")"
done < <(find config manifests -name kustomization.yaml -exec grep -L '^kind: Component$' {} +)
# helm lint prints its result to standard output also if it finds nothing.
linted() { .local/bin/helm lint --quiet --strict --set image.registry=localhost "$chart"; }
check "fix the chart" linted
[ $failed = 0 ] && echo "verify: passed"
exit $failed
