// Package refusal recognizes who refused a request to the API server: an admission webhook or an
// admission policy.
package refusal

import (
	"regexp"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// deniedBy matches what k8s.io/apiserver writes into the message of a denial, and failing what it
// writes if a webhook that must not fail fails. The text after it is the webhook's or policy's own.
var (
	deniedBy = regexp.MustCompile(`(?:admission webhook|\w*[Pp]olicy) ["'][^"']{1,253}["']` +
		`(?: with binding '[^']{1,253}')? denied (?:the )?request`)
	failing = regexp.MustCompile(`failed calling webhook "[^"]{1,253}"`)
)

// Denied reports whether the API server refuses the request and will refuse it again. A Forbidden
// that admission does not explain is not counted: an API server that has just started forbids
// everything until it has loaded the RBAC rules.
func Denied(err error) bool {
	return err != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || deniedBy.MatchString(err.Error()))
}

// By returns the webhook or the policy that refused the request, or the webhook that failed; "" if
// the answer names none. It contains no name that a tenant may choose.
func By(err error) string {
	if err == nil {
		return ""
	}
	if by, _, ok := strings.Cut(deniedBy.FindString(err.Error()), " denied "); ok {
		return by
	}
	if by, ok := strings.CutPrefix(failing.FindString(err.Error()), "failed calling "); ok && apierrors.IsInternalError(err) {
		return "the failing " + by
	}
	return ""
}

// maxMessage is the longest message in bytes. The note of an event has at most 1,024.
const maxMessage = 400

// Message returns the text of err for an event. Webhooks and policies, and with them tenants, may
// have written it, so it is cut. It names the PodDisruptionBudget that refused an eviction.
func Message(err error) string {
	text := err.Error()
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		text = cause.Message
	}
	return Short(text)
}

// Short cuts a text that a tenant may have written, for an event.
func Short(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
