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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// idle are the grants that a scheduler with the shipped configuration asks for nothing by, and why they ship all the same.
var idle = map[grant]string{
	{"get", "podgroups", "scheduling.x-k8s.io", "", ""}:   coscheduling,
	{"list", "podgroups", "scheduling.x-k8s.io", "", ""}:  coscheduling,
	{"watch", "podgroups", "scheduling.x-k8s.io", "", ""}: coscheduling,
	{"list", "services", "", "", ""}:                      spreading,
	{"watch", "services", "", "", ""}:                     spreading,
}

const (
	coscheduling = "the plugin Coscheduling is in another configuration"
	spreading    = "a configuration of one's own may leave the system's default spreading on"
)

// limit is how long a program may take until it was denied what it lacks, on a machine that also compiles. On an idle one no attempt
// of a scheduler takes longer than three seconds.
const limit = 30 * time.Second

// TestNoRightIsIdle takes each right away in turn, then each binding to a role, and runs a scheduler until it was denied just that.
func TestNoRightIsIdle(t *testing.T) {
	furnish(t)
	shipped := shippedRights(t, schedulers)
	r := &runner{
		shipped: shipped, token: tokenOf(t, reader), programs: controlPlane.Schedulers,
		start: func(ctx context.Context, flags []string) (*lab.Process, error) {
			return controlPlane.StartScheduler(ctx, lab.SchedulerOptions{Flags: flags, Edit: expireSoon})
		},
		prepare: func(ctx context.Context) (work, error) { return makeWorkload(ctx) },
	}

	// The exceptions must be idle indeed: without them everything happens and nothing is denied.
	t.Run("all but the exceptions", func(t *testing.T) {
		exceptions := slices.Collect(maps.Keys(idle))
		for _, g := range exceptions {
			if !slices.Contains(shipped.grants(), g) {
				t.Errorf("exception %s: it is not granted", g)
			}
		}
		must(t, shipped.apply(t.Context(), exceptions...))
		r.run(t, nil, func(a attempt) error {
			if len(a.denials) > 0 {
				return fmt.Errorf("denied was:\n%s", strings.Join(a.denials, "\n"))
			}
			return cmp.Or(a.metrics, a.done(t.Context()))
		})
	})

	for _, g := range shipped.grants() {
		if _, ok := idle[g]; !ok {
			t.Run(g.String(), func(t *testing.T) {
				var flags []string
				if g.verb == "list" {
					// Where the API server streams lists to informers, these only watch. So they are told not to, as where the feature WatchList is off.
					flags = []string{"--feature-gates=WatchListClient=false"}
				}
				r.without(t, flags, g)
			})
		}
	}
	r.withoutBindings(t)
}

// expireSoon has gates expire sooner than anybody waits for a denial.
func expireSoon(config map[string]any) {
	for _, plugin := range config["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		if plugin := plugin.(map[string]any); plugin["name"] == "ReplicaSafety" {
			plugin["args"].(map[string]any)["gateTimeout"] = "1s"
		}
	}
}

// tokenOf returns a token of a ServiceAccount.
func tokenOf(t *testing.T, account string) string {
	t.Helper()
	accounts := client.CoreV1().ServiceAccounts(namespace)
	token, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// runner runs a program again and again, each time with some of the rights that ship.
type runner struct {
	shipped rights
	token   string // of who may read /metrics
	// start starts the program with these flags, and returns when it is ready; programs are those that were started.
	start    func(ctx context.Context, flags []string) (*lab.Process, error)
	programs func() []*lab.Process
	// prepare gives the program something to do.
	prepare func(context.Context) (work, error)
}

// work is what a program has to do, and asks the API server for.
type work interface {
	// stir changes objects until ctx is done.
	stir(ctx context.Context)
	// done returns an error unless all has happened.
	done(ctx context.Context) error
	// remove removes the objects that the work is made of.
	remove(ctx context.Context) error
}

// attempt is a program's attempt to do all its work.
type attempt struct {
	work
	// denials are the lines of the program's log so far that tell of a right that it lacks.
	denials []string
	// metrics is nil when the program's metrics could be read.
	metrics error
}

// without fails the test unless a program with all rights but these asks for each of them and is denied it.
func (r *runner) without(t *testing.T, flags []string, lacking ...grant) {
	t.Helper()
	must(t, r.shipped.apply(t.Context(), lacking...))
	r.run(t, flags, func(a attempt) error {
		for _, g := range lacking {
			if !g.deniedIn(a.denials) {
				return fmt.Errorf("%s was not asked for; denied was:\n%s", g, strings.Join(a.denials, "\n"))
			}
		}
		return nil
	})
}

// withoutBindings deletes each binding of a role to the program's ServiceAccount in turn: something that its role grants must be denied
// then. The binding is back for the next also where nothing was.
func (r *runner) withoutBindings(t *testing.T) {
	must(t, r.shipped.apply(t.Context()))
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
			return fmt.Errorf("nothing that %s grants was denied; denied was:\n%s", role, strings.Join(a.denials, "\n"))
		}
	}
	clusterRoleBindings := client.RbacV1().ClusterRoleBindings()
	everywhere, err := clusterRoleBindings.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, binding := range everywhere.Items {
		if slices.ContainsFunc(binding.Subjects, isOurs) {
			t.Run("ClusterRoleBinding "+binding.Name, func(t *testing.T) {
				role, err := client.RbacV1().ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
				must(t, err)
				must(t, clusterRoleBindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
				defer func() {
					binding.ResourceVersion = ""
					_, err := clusterRoleBindings.Create(t.Context(), &binding, metav1.CreateOptions{})
					must(t, err)
				}()
				r.run(t, nil, deniedOf(role.Name, role.Rules))
			})
		}
	}
	inPlace, err := client.RbacV1().RoleBindings(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, binding := range inPlace.Items {
		if slices.ContainsFunc(binding.Subjects, isOurs) {
			t.Run("RoleBinding "+binding.Namespace+" "+binding.Name, func(t *testing.T) {
				roleBindings := client.RbacV1().RoleBindings(binding.Namespace)
				role, err := client.RbacV1().Roles(binding.Namespace).Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
				must(t, err)
				must(t, roleBindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
				defer func() {
					binding.ResourceVersion = ""
					_, err := roleBindings.Create(t.Context(), &binding, metav1.CreateOptions{})
					must(t, err)
				}()
				r.run(t, nil, deniedOf(role.Name, role.Rules))
			})
		}
	}
}

// run starts a program, gives it something to do, and fails the test unless check returns nil within limit.
func (r *runner) run(t *testing.T, flags []string, check func(attempt) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w, err := r.prepare(ctx)
	must(t, err)
	defer func() { must(t, w.remove(t.Context())) }()

	earlier := len(r.programs())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		program, err := r.start(ctx, flags)
		if err == nil {
			close(ready)
			w.stir(ctx)
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
	must(t, err)
}

// readMetrics reads what a program serves, as somebody about whom it has to ask the API server.
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
