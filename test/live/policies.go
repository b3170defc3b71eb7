package live

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// PolicyAPI describes how a control plane serves MutatingAdmissionPolicies.
type PolicyAPI struct {
	// Version is the version of the group admissionregistration.k8s.io that contains them.
	Version string
	// Flags are the flags with which the API server serves them.
	Flags []string
}

// MutatingPolicies returns how the control plane of the tests serves MutatingAdmissionPolicies.
// Before Kubernetes 1.36 they are beta, and the API server does not serve them by default.
func MutatingPolicies() PolicyAPI {
	switch lab.KubernetesVersion() {
	case "1.34", "1.35":
		return PolicyAPI{Version: "v1beta1", Flags: []string{
			"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
		}}
	default:
		return PolicyAPI{Version: "v1"}
	}
}

// Convert returns manifests with the MutatingAdmissionPolicies in this version, like the command in
// docs/versions.md.
func (api PolicyAPI) Convert(manifests string) string {
	const group, kind = "apiVersion: admissionregistration.k8s.io/", "\nkind: MutatingAdmission"
	return strings.ReplaceAll(manifests, group+"v1"+kind, group+api.Version+kind)
}

// The overlays that gate new pods.
const (
	AutoscalerMode      = "manifests/overlays/autoscaler"
	AnyScheduler        = "manifests/overlays/any-scheduler"
	AnySchedulerWebhook = "manifests/overlays/any-scheduler-webhook"
)

// service matches the Service of a webhook in a manifest.
var service = regexp.MustCompile(`service:\n( {6}.*\n)+`)

// KubectlMode runs kubectl with a verb, apply or delete, and its flags on the shipped manifests of
// an overlay that gates new pods. Of AnyScheduler it uses only the objects that AutoscalerMode has
// too, and the PodDisruptionBudget: the controller of a test is a process.
func KubectlMode(ctx context.Context, cp *lab.ControlPlane, overlay string, verb ...string) error {
	return kubectlMode(ctx, cp, overlay, "", verb...)
}

// kubectlMode is KubectlMode. The API server sends requests to the webhook of AnySchedulerWebhook
// at the address in webhook, not to its Service.
func kubectlMode(ctx context.Context, cp *lab.ControlPlane, overlay, webhook string, verb ...string) error {
	kubectl := filepath.Join(cp.Root, ".local", "bin", "kubectl")
	manifests, err := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(cp.Root, overlay)).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return fmt.Errorf("building %s: %w", overlay, err)
	}
	var used []string
	for _, object := range strings.Split(string(manifests), "\n---\n") {
		if strings.Contains(object, "\nkind: Mutating") || strings.Contains(object, "\nkind: PodDisruptionBudget\n") ||
			strings.Contains(object, "\n  name: spot-controller-autoscaler\n") || strings.Contains(object, "\n  name: spot-controller-webhook\n") {
			object = service.ReplaceAllString(object, "url: https://"+webhook+"/gate\n")
			used = append(used, object)
		}
	}
	command := exec.CommandContext(ctx, kubectl, append(slices.Clone(verb), "--kubeconfig="+cp.Kubeconfig, "-f", "-")...)
	command.Stdin = strings.NewReader(MutatingPolicies().Convert(strings.Join(used, "\n---\n")))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s of %s: %w: %s", verb[0], overlay, err, out)
	}
	return nil
}
