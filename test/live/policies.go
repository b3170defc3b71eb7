package live

import (
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
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
	const group, kind = "apiVersion: admissionregistration.k8s.io/", "\nkind: Mutating"
	return strings.ReplaceAll(manifests, group+"v1"+kind, group+api.Version+kind)
}
