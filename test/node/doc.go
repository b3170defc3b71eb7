// Package node runs a real kubelet with Debian's containerd on this machine, joined to a lab's control plane, so that the shipped image
// can be run from the shipped manifests. Its test stands behind the build tag node, because it needs root and programs that
// hack/test-node.sh brings: make test-node.
//
// The manifests are applied as they are. What differs from a cluster: there is no kube-proxy, so the API server listens at its Service's
// address; there is no DNS and no registry, and nothing needs them, because the images are loaded beforehand; the bridge network enforces
// no NetworkPolicy; the kubelet acts with the administrator's credential.
//
// Everything runs in namespaces of its own (Isolate): the kernel ends the processes and removes mounts, network and addresses with
// them, however the test ends. What is left then, a folder and empty cgroups, a shell that outlives the test removes.
package node
