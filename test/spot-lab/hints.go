package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// noticeTaint is the taint that the AWS node termination handler sets when a spot node gets notice.
const noticeTaint = "aws-node-termination-handler/spot-itn"

// hints returns commands for another shell. They can be pasted as they are, in this order, from any
// folder. With Karpenter any replica may run on on-demand, on a node that was started for a floor.
func hints(root, kubeconfig string, keepScheduler, karpenter bool) string {
	examples := "example-workloads"
	if keepScheduler {
		examples = "example-workloads-keep"
	}
	kubectl, plugin := filepath.Join(root, ".local", "bin"), filepath.Join(root, "bin")
	var b strings.Builder
	if !exists(filepath.Join(kubectl, "kubectl")) || !exists(filepath.Join(plugin, "kubectl-spot")) {
		fmt.Fprintf(&b, "kubectl or kubectl-spot is missing. This builds them:\n  make -C %s tools build\n", quoted(root))
	}
	node := "kubectl -n spot-example get pods -l app=thumbnails -o jsonpath='{.items[0].spec.nodeName}'"
	if karpenter {
		node = "kubectl get nodes -l karpenter.sh/capacity-type=spot -o jsonpath='{.items[0].metadata.name}'"
	}
	fmt.Fprintf(&b, `In another shell, with example workloads:
  export KUBECONFIG=%s PATH=%s:%s:"$PATH"
  kubectl apply -k %s && kubectl -n spot-example wait deployment --all --for=condition=Available --timeout=2m
Then see the floors; reclaim a spot node; watch its replicas move (Ctrl-C ends it); undo:
  kubectl spot status -A
  node=$(%s) && kubectl taint node "$node" %[6]s:NoSchedule
  kubectl spot nodes "$node" -w
  kubectl taint node "$node" %[6]s:NoSchedule-
`, quoted(kubeconfig), quoted(plugin), quoted(kubectl), quoted(filepath.Join(root, "manifests", "overlays", examples)), node, noticeTaint)
	return b.String()
}

// plain matches words that a shell takes literally.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

// quoted returns the word as a shell has to read it.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
