// Package node runs a real kubelet with Debian's containerd on this machine, joined to a lab's control plane, so that the shipped image
// can be run from the shipped manifests. Its test stands behind the build tag node, because it needs root and programs that
// hack/test-node.sh brings: make test-node.
//
// Everything runs in namespaces of its own (Isolate): the kernel ends the processes and removes mounts, network and addresses with
// them, however the test ends. What is left then, a folder and empty cgroups, a shell that outlives the test removes.
package node
