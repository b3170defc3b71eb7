package rbac

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// exempt lists the grants that a scheduler with the shipped configuration does not use, and why
// they ship.
var exempt = map[grant]string{
	{"get", "podgroups", "scheduling.x-k8s.io", "", ""}:   coscheduling,
	{"list", "podgroups", "scheduling.x-k8s.io", "", ""}:  coscheduling,
	{"watch", "podgroups", "scheduling.x-k8s.io", "", ""}: coscheduling,
	{"list", "services", "", "", ""}:                      spreading,
	{"watch", "services", "", "", ""}:                     spreading,
	{"patch", "events", "", "", ""}:                       fallback,
}

const (
	coscheduling = "only another configuration enables the plugin Coscheduling"
	spreading    = "a user's configuration may enable the system's default spreading"
	fallback     = "the scheduler uses this API if it started while the API server did not answer"
)

// limit is how long a program may take until the API server has denied the missing right, on a
// machine that also compiles. On an idle machine, an attempt of a scheduler takes at most three
// seconds.
const limit = time.Minute

// TestSchedulerNeedsEachRight removes each right in turn, and then each binding to a role. It runs
// a scheduler until the API server has denied exactly that right.
func TestSchedulerNeedsEachRight(t *testing.T) {
	createSharedObjects(t)
	shipped := shippedRights(t, schedulers)
	r := &runner{
		shipped: shipped, token: tokenOf(t, reader), programs: controlPlane.Schedulers,
		start: func(ctx context.Context, flags []string) (*lab.Process, error) {
			return controlPlane.StartScheduler(ctx, lab.SchedulerOptions{Flags: append([]string{"-v=2"}, flags...), Edit: configure})
		},
		prepare: func(ctx context.Context) (work, error) { return makeWorkload(ctx) },
	}

	// The exceptions must really be unused: without them everything works and nothing is denied.
	t.Run("all but the exceptions", func(t *testing.T) {
		exceptions := slices.Collect(maps.Keys(exempt))
		for _, g := range exceptions {
			if !slices.Contains(shipped.grants(), g) {
				t.Errorf("exception %s is not granted", g)
			}
		}
		live.Must(t, shipped.apply(t.Context(), exceptions...))
		r.run(t, nil, func(a attempt) error {
			if len(a.denials) > 0 {
				return fmt.Errorf("denials:\n%s", strings.Join(a.denials, "\n"))
			}
			return cmp.Or(a.metrics, a.done(t.Context()))
		})
	})

	for _, g := range shipped.grants() {
		if _, ok := exempt[g]; !ok {
			t.Run(g.String(), func(t *testing.T) {
				var flags []string
				if g.verb == "list" {
					// If the API server streams lists to informers, they send only watch requests.
					// The flag disables this, as in clusters without the feature WatchList.
					flags = []string{"--feature-gates=WatchListClient=false"}
				}
				r.without(t, flags, g)
			})
		}
	}
	r.withoutBindings(t)
}

// configure makes gates expire before a test stops waiting for a denial, and the floor apply to a
// pod that selects a spot node.
func configure(config map[string]any) {
	for _, plugin := range config["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		if plugin := plugin.(map[string]any); plugin["name"] == "ReplicaSafety" {
			args := plugin["args"].(map[string]any)
			args["gateTimeout"], args["exemptions"] = "1s", "Ignore"
		}
	}
}

// tokenOf returns a token of a ServiceAccount.
func tokenOf(t *testing.T, account string) string {
	t.Helper()
	accounts := client.CoreV1().ServiceAccounts(namespace)
	token, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	live.Must(t, err)
	return token.Status.Token
}

// runner repeatedly runs a program, each time with some of the shipped rights.
type runner struct {
	shipped rights
	token   string // of an account that may read /metrics
	// start starts the program with these flags, and returns when it is ready. programs returns the
	// started programs.
	start    func(ctx context.Context, flags []string) (*lab.Process, error)
	programs func() []*lab.Process
	// prepare creates work for the program.
	prepare func(context.Context) (work, error)
}

// work makes a program send requests to the API server.
type work interface {
	// keepChanging changes objects until ctx is done.
	keepChanging(ctx context.Context)
	// done returns an error unless the work is done.
	done(ctx context.Context) error
	// remove deletes the objects of the work.
	remove(ctx context.Context) error
}

// attempt is a program's attempt to do all its work.
type attempt struct {
	work
	// denials are the lines so far in the program's log that report a missing right.
	denials []string
	// metrics is nil if the program's metrics could be read.
	metrics error
}

// without fails the test unless the API server denies each lacking right to the program.
func (r *runner) without(t *testing.T, flags []string, lacking ...grant) {
	t.Helper()
	live.Must(t, r.shipped.apply(t.Context(), lacking...))
	r.run(t, flags, func(a attempt) error {
		for _, g := range lacking {
			if !g.deniedIn(a.denials) {
				return fmt.Errorf("%s was not requested; denials:\n%s", g, strings.Join(a.denials, "\n"))
			}
		}
		return nil
	})
}

// withoutBindings deletes each binding of a role to the program's ServiceAccount in turn. The API
// server must then deny a right of that role. The binding is restored for the next case, even after
// a failure.
func (r *runner) withoutBindings(t *testing.T) {
	live.Must(t, r.shipped.apply(t.Context()))
	isOurs := func(subject rbacv1.Subject) bool {
		return subject.Namespace == namespace && subject.Name == string(r.shipped.of)
	}
	deniedOf := func(role string, rules []rbacv1.PolicyRule) func(attempt) error {
		return func(a attempt) error {
			for _, rule := range rules {
				if slices.ContainsFunc(split(rule, ""), func(g grant) bool { return g.deniedIn(a.denials) }) {
					return nil
				}
			}
			return fmt.Errorf("no right of %s was denied; denials:\n%s", role, strings.Join(a.denials, "\n"))
		}
	}
	clusterRoleBindings := client.RbacV1().ClusterRoleBindings()
	everywhere, err := clusterRoleBindings.List(t.Context(), metav1.ListOptions{})
	live.Must(t, err)
	for _, binding := range everywhere.Items {
		if slices.ContainsFunc(binding.Subjects, isOurs) {
			t.Run("ClusterRoleBinding "+binding.Name, func(t *testing.T) {
				role, err := client.RbacV1().ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
				live.Must(t, err)
				live.Must(t, clusterRoleBindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
				defer func() {
					binding.ResourceVersion = ""
					_, err := clusterRoleBindings.Create(t.Context(), &binding, metav1.CreateOptions{})
					live.Must(t, err)
				}()
				r.run(t, nil, deniedOf(role.Name, role.Rules))
			})
		}
	}
	namespaced, err := client.RbacV1().RoleBindings(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	live.Must(t, err)
	for _, binding := range namespaced.Items {
		if slices.ContainsFunc(binding.Subjects, isOurs) {
			t.Run("RoleBinding "+binding.Namespace+" "+binding.Name, func(t *testing.T) {
				roleBindings := client.RbacV1().RoleBindings(binding.Namespace)
				role, err := client.RbacV1().Roles(binding.Namespace).Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
				live.Must(t, err)
				live.Must(t, roleBindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
				defer func() {
					binding.ResourceVersion = ""
					_, err := roleBindings.Create(t.Context(), &binding, metav1.CreateOptions{})
					live.Must(t, err)
				}()
				r.run(t, nil, deniedOf(role.Name, role.Rules))
			})
		}
	}
}

// run starts a program, creates work for it, and fails the test unless check returns nil within
// limit.
func (r *runner) run(t *testing.T, flags []string, check func(attempt) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w, err := r.prepare(ctx)
	live.Must(t, err)
	defer func() { live.Must(t, w.remove(t.Context())) }()

	earlier := len(r.programs())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		program, err := r.start(ctx, flags)
		if err == nil {
			close(ready)
			w.keepChanging(ctx)
			err = program.Kill()
		}
		ended <- err
	}()
	a := attempt{work: w, metrics: errors.New("the program is not ready")}
	err = live.Until(ctx, limit, func() error {
		programs := r.programs()[earlier:]
		if len(programs) == 0 {
			return a.metrics
		}
		select {
		case <-ready:
			if a.metrics != nil {
				a.metrics = r.readMetrics(ctx, programs[0].URL())
			}
		default:
		}
		denials, err := programs[0].Denials()
		if err != nil {
			return err
		}
		a.denials = slices.DeleteFunc(denials, func(line string) bool { return strings.Contains(line, refusal) })
		return check(a)
	})
	cancel()
	if ended := <-ended; ended != nil && err != nil {
		t.Log(ended)
	}
	// Without the old lease the next program leads at once.
	leases := client.CoordinationV1().Leases(namespace)
	if err := leases.Delete(t.Context(), string(r.shipped.of), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	live.Must(t, err)
}

// readMetrics reads the program's metrics with a token that the program must check with the API
// server.
func (r *runner) readMetrics(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := insecure.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("/metrics: %s: %s", response.Status, body)
	}
	return err
}
