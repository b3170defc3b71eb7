package rbac

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// namespace contains the ServiceAccounts and a Role for each.
const namespace = "kube-system"

// account is the name of a ServiceAccount, of its roles, and of the lease of its program.
type account string

const (
	schedulers  account = "spot-aware-scheduler"
	controllers account = "spot-controller"
)

// grant is the smallest part of a rule.
type grant struct {
	verb, resource, group string
	object                string // empty: all
	namespace             string // empty: all
}

func (g grant) String() string {
	text := g.verb + " " + g.resource
	if g.group != "" {
		text += "." + g.group
	}
	return text + strings.TrimSuffix(" "+g.object, " ")
}

// split returns the grants of a rule. namespace is the namespace of its Role, or empty for a
// ClusterRole.
func split(rule rbacv1.PolicyRule, namespace string) []grant {
	objects := rule.ResourceNames
	if len(objects) == 0 {
		objects = []string{""}
	}
	var grants []grant
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, object := range objects {
					grants = append(grants, grant{verb, resource, group, object, namespace})
				}
			}
		}
	}
	return grants
}

// rule returns the rule that grants only g.
func (g grant) rule() rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{g.group}, Resources: []string{g.resource}, Verbs: []string{g.verb}}
	if g.object != "" {
		rule.ResourceNames = []string{g.object}
	}
	return rule
}

// allowed reports whether the API server currently grants this to a ServiceAccount.
func (g grant) allowed(ctx context.Context, to account) (bool, error) {
	resource, subresource, _ := strings.Cut(g.resource, "/")
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + string(to),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: g.verb, Group: g.group, Resource: resource, Subresource: subresource, Name: g.object, Namespace: g.namespace,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// deniedIn reports whether a line of a log shows that the API server denied this.
func (g grant) deniedIn(lines []string) bool {
	message := fmt.Sprintf(`cannot %s resource "%s" in API group "%s"`, g.verb, g.resource, g.group)
	if g.resource == "resourceclaims/binding" { // not a request: a separate right that resourceclaims/status requires
		message = fmt.Sprintf(`requires resource="resourceclaims/binding", verb="%s" permission`, g.verb)
	}
	return slices.ContainsFunc(lines, func(line string) bool {
		return strings.Contains(strings.ReplaceAll(line, `\`, ""), message) // the log nests quoted strings
	})
}

// rights are the rights of a ServiceAccount.
type rights struct {
	of         account
	rules      []rbacv1.PolicyRule            // of the ClusterRole
	namespaced map[string][]rbacv1.PolicyRule // of the Roles, by namespace
}

// shippedRights returns the rights that the lab applied from the manifests.
func shippedRights(t *testing.T, of account) rights {
	t.Helper()
	clusterRole, err := client.RbacV1().ClusterRoles().Get(t.Context(), string(of), metav1.GetOptions{})
	live.Must(t, err)
	roles, err := client.RbacV1().Roles(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + string(of)})
	live.Must(t, err)
	namespaced := map[string][]rbacv1.PolicyRule{}
	for _, role := range roles.Items {
		namespaced[role.Namespace] = role.Rules
	}
	return rights{of, clusterRole.Rules, namespaced}
}

// grants returns all grants of the rules.
func (r rights) grants() []grant {
	var grants []grant
	for _, rule := range r.rules {
		grants = append(grants, split(rule, "")...)
	}
	for namespace, rules := range r.namespaced {
		for _, rule := range rules {
			grants = append(grants, split(rule, namespace)...)
		}
	}
	return grants
}

// apply grants these rights, except without, to the ServiceAccount's roles. It returns when they
// take effect in the API server.
func (r rights) apply(ctx context.Context, without ...grant) error {
	var rules []rbacv1.PolicyRule
	namespaced := map[string][]rbacv1.PolicyRule{}
	var kept []grant
	for _, g := range r.grants() {
		switch {
		case slices.Contains(without, g):
			continue
		case g.namespace == "":
			rules = append(rules, g.rule())
		default:
			namespaced[g.namespace] = append(namespaced[g.namespace], g.rule())
		}
		kept = append(kept, g)
	}
	clusterRoles := client.RbacV1().ClusterRoles()
	clusterRole, err := clusterRoles.Get(ctx, string(r.of), metav1.GetOptions{})
	if err != nil {
		return err
	}
	clusterRole.Rules = rules
	if _, err := clusterRoles.Update(ctx, clusterRole, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for namespace := range r.namespaced {
		roles := client.RbacV1().Roles(namespace)
		role, err := roles.Get(ctx, string(r.of), metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = namespaced[namespace]
		if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return live.Until(ctx, 10*time.Second, func() error { return rightsInEffect(ctx, r.of, kept, without) })
}

// rightsInEffect returns an error unless the API server allows and denies a ServiceAccount exactly
// these grants.
func rightsInEffect(ctx context.Context, to account, allowed, denied []grant) error {
	for want, grants := range map[bool][]grant{true: allowed, false: denied} {
		for _, g := range grants {
			if got, err := g.allowed(ctx, to); err != nil || got != want {
				return fmt.Errorf("%s: %w", g, cmp.Or(err, fmt.Errorf("allowed is %t", got)))
			}
		}
	}
	return nil
}
