// Package node runs a real kubelet with Debian's containerd on this machine, joined to a lab's
// control plane. The test runs the shipped image from the shipped manifests. It has the build tag
// node, because it needs root and the programs that hack/test-node.sh installs: make test-node.
//
// The manifests are applied unchanged. The test differs from a cluster as follows. kube-proxy does
// not run, so the API server listens at the address of its Service. DNS and a registry do not
// exist, and are not needed, because the images are loaded beforehand. The bridge network enforces
// no NetworkPolicy. The kubelet uses the administrator's credential.
//
// Everything runs in its own namespaces (Isolate). The kernel kills the processes and removes the
// mounts, network and addresses with the namespaces, however the test ends. A shell that outlives
// the test removes the rest, a folder and empty cgroups.
package node
