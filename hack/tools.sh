#!/usr/bin/env bash
# Builds the local control plane and the build's tools into .local/bin, at the versions pinned in hack/tools/go.mod.
# Does nothing when they were built from the same pins already.
set -euo pipefail
cd "$(dirname "$0")/tools"
bin=$(cd ../.. && pwd)/.local/bin
mkdir -p "$bin"

want=$(cat go.mod go.sum ../tools.sh | sha256sum | cut -d' ' -f1)-$(go env GOVERSION GOARCH | tr '\n' '-')
[ "$(cat "$bin/.built" 2>/dev/null)" = "$want" ] && exit 0

# The same flags as the product's build, so that both share one build cache.
export CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off
kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
# Unstamped, the API server calls itself v0.0.0-master, which clients cannot parse.
stamp="-X k8s.io/component-base/version.gitVersion=$kubernetes"

build() { # name package
  echo "tools: building $1 (the first time takes minutes)" >&2
  go build -ldflags "-s -w $stamp" -o "$bin/$1" "$2"
}
build etcd                    go.etcd.io/etcd/server/v3
build kube-apiserver          k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler          k8s.io/kubernetes/cmd/kube-scheduler
build kubectl                 k8s.io/kubernetes/cmd/kubectl
build kwok                    sigs.k8s.io/kwok/cmd/kwok
build staticcheck             honnef.co/go/tools/cmd/staticcheck
echo "$want" >"$bin/.built"
