#!/usr/bin/env bash
# Builds the local control plane, kubectl, Helm, Karpenter, the linter and the generators of pages
# into .local/bin, at the versions pinned in the go.mod of hack/tools, hack/helm, hack/helm3,
# hack/karpenter, hack/golangci-lint, hack/helm-docs and hack/crd-ref-docs. Each has a module of its
# own, so that it does not raise the versions of modules of the control plane. The argument selects
# what it builds:
#
#	control-plane  only the control plane, which is all that make demo and make replay need
#	kubelet        also the kubelet
#	helm           only Helm; the same for helm3, which is Helm 3
#	golangci-lint  only that; the same for helm-docs and crd-ref-docs
#	karpenter      only Karpenter; also copies its CRDs and instance types from the module cache
#	               into .local/karpenter
#	controllers    only Argo Rollouts and Kueue, pinned in hack/argo-rollouts/go.mod and
#	               hack/kueue/go.mod; also copies their CRDs and manifests from the module cache
#	               into .local/argo-rollouts and .local/kueue. Requires kubectl. Only make
#	               test-long needs them
#	1.34           only the control plane of that minor version of Kubernetes, pinned in
#	               hack/kubernetes-1.34/go.mod, into .local/bin/1.34. The same for 1.35 and
#	               1.37. 1.36 is the version of the default control plane
#
# It does nothing if the programs were built from the same pins.
set -euo pipefail
if [ "${1:-}" = 1.36 ]; then set -- control-plane; fi
if [ "${1:-}" = controllers ]; then
  "$0" argo-rollouts
  exec "$0" kueue
fi
case ${1:-} in
  [0-9]*) module=kubernetes-$1 folder=bin/$1 ;;
  helm | helm3 | golangci-lint | helm-docs | crd-ref-docs | karpenter | argo-rollouts | kueue) module=$1 folder=bin ;;
  *) module=tools folder=bin ;;
esac
cd "$(dirname "$0")/$module"
bin=$(cd ../.. && pwd)/.local/$folder
mkdir -p "$bin"

want=$(cat go.mod go.sum ../tools.sh | sha256sum | cut -d' ' -f1)-$(go env GOVERSION GOARCH | tr '\n' '-')
built() { [ "$(cat "$bin/$1" 2>/dev/null)" = "$want" ]; }

# Use the flags of the product's build to share one build cache.
export CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off
if [ $module = helm ]; then
  built .built-helm && exit
  echo "tools: building helm (the first time takes minutes)" >&2
  go build -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$(go list -m -f '{{.Version}}' helm.sh/helm/v4)" \
    -o "$bin/helm" helm.sh/helm/v4/cmd/helm
  echo "$want" >"$bin/.built-helm"
  exit
fi
if [ $module = helm3 ]; then
  built .built-helm3 && exit
  echo "tools: building helm3 (the first time takes minutes)" >&2
  # Without a version of Kubernetes, helm template assumes 1.20, which the chart refuses.
  minor=$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
  go build -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$(go list -m -f '{{.Version}}' helm.sh/helm/v3) \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor" \
    -o "$bin/helm3" helm.sh/helm/v3/cmd/helm
  echo "$want" >"$bin/.built-helm3"
  exit
fi
if [ $module = golangci-lint ] || [ $module = helm-docs ] || [ $module = crd-ref-docs ]; then
  built .built-$module && exit
  echo "tools: building $module (the first time takes minutes)" >&2
  go build -ldflags "-s -w" -o "$bin/" "$(go list tool)"
  echo "$want" >"$bin/.built-$module"
  exit
fi
if [ $module = karpenter ]; then
  built .built-karpenter && exit
  echo "tools: building karpenter-kwok (the first time takes minutes)" >&2
  go build -ldflags "-s -w" -o "$bin/karpenter-kwok" sigs.k8s.io/karpenter/kwok
  source=$(go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)/kwok
  data=$bin/../karpenter
  rm -rf "$data"
  mkdir -p "$data/crds"
  install -m 644 "$source"/charts/crds/*.yaml "$source"/apis/crds/*.yaml "$data/crds"
  install -m 644 "$source/cloudprovider/instance_types.json" "$data"
  echo "$want" >"$bin/.built-karpenter"
  exit
fi
if [ $module = argo-rollouts ] || [ $module = kueue ]; then
  built .built-$module && exit
  package=$(go list tool)
  echo "tools: building $module (the first time takes minutes)" >&2
  go build -ldflags "-s -w" -o "$bin/" "$package"
  source=$(go list -f '{{.Module.Dir}}' "$package")
  data=$bin/../$module
  rm -rf "$data"
  mkdir -p "$data"
  if [ $module = kueue ]; then
    "$bin/kubectl" kustomize "$source/config/default" >"$data/manifests.yaml"
  else
    install -m 644 "$source"/manifests/crds/*-crd.yaml "$data"
  fi
  echo "$want" >"$bin/.built-$module"
  exit
fi

# build compiles and links the packages side by side. Their last elements are the programs' names.
build() { # description, packages...
  echo "tools: building $1 (the first time takes minutes)" >&2
  # Without a version, the API server reports v0.0.0-master, which clients cannot parse.
  go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" \
    -o "$bin/" "${@:2}"
}
if ! built .built; then
  if [ $module = tools ]; then
    build "the control plane" k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler} sigs.k8s.io/kwok/cmd/kwok go.etcd.io/etcd/server/v3
    mv "$bin/server" "$bin/etcd"
  else
    build "the control plane of Kubernetes ${1}" k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler}
  fi
  echo "$want" >"$bin/.built"
fi
if [ $module != tools ] || [ "${1:-}" = control-plane ]; then exit; fi
if ! built .built-checks; then
  build "kubectl and controller-gen" k8s.io/kubernetes/cmd/kubectl sigs.k8s.io/controller-tools/cmd/controller-gen
  echo "$want" >"$bin/.built-checks"
fi
# Only make test-node needs a kubelet.
if [ "${1:-}" = kubelet ] && ! built .built-kubelet; then
  build kubelet k8s.io/kubernetes/cmd/kubelet
  echo "$want" >"$bin/.built-kubelet"
fi
# These are last because they have modules of their own.
for module in helm helm3 golangci-lint helm-docs crd-ref-docs; do
  ../tools.sh $module
done
exec ../tools.sh karpenter
