package monitoring

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// More is what Scrape does besides scraping processes.
type More struct {
	// Rules is the path of a file with rules; empty means no rules.
	Rules string
	// Namespaces are the namespaces of processes, which Prometheus adds as a label.
	Namespaces map[*lab.Process]string
	// OpenCost is the host and port of a server with the metrics of OpenCost, over HTTP; empty
	// means none.
	OpenCost string
}

// Scrape starts a Prometheus that stops with the control plane. It returns after Prometheus has
// scraped each process once. The processes with the same name are a job with that name, and are
// scraped at the given interval. Prometheus uses the token of the shipped ServiceAccount, which
// Kubernetes writes to the shipped Secret.
func Scrape(ctx context.Context, cp *lab.ControlPlane, every time.Duration, more More, processes ...*lab.Process) (promv1.API, error) {
	kubectl := exec.CommandContext(ctx, filepath.Join(cp.Root, ".local/bin/kubectl"), "--kubeconfig="+cp.Kubeconfig,
		"apply", "--filename="+filepath.Join(cp.Root, "manifests/overlays/monitoring/rbac.yaml"))
	if out, err := kubectl.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("applying rbac.yaml: %w\n%s", err, out)
	}
	dir, err := os.MkdirTemp(cp.Dir, "prometheus-")
	if err != nil {
		return nil, err
	}
	token := filepath.Join(dir, "token")
	if err := writeToken(ctx, cp, token); err != nil {
		return nil, err
	}
	targets := map[string][]any{} // by job
	for _, p := range processes {
		target := map[string]any{"targets": []string{strings.TrimPrefix(p.URL(), "https://")}}
		if namespace := more.Namespaces[p]; namespace != "" {
			target["labels"] = map[string]any{"namespace": namespace}
		}
		targets[p.Name] = append(targets[p.Name], target)
	}
	var jobs []map[string]any
	for name, targets := range targets {
		jobs = append(jobs, map[string]any{
			"job_name": name, "scheme": "https", "authorization": map[string]any{"credentials_file": token},
			"tls_config": map[string]any{"insecure_skip_verify": true}, "static_configs": targets,
		})
	}
	want := len(processes)
	if more.OpenCost != "" {
		want++
		jobs = append(jobs, map[string]any{ // as in OpenCost's documentation
			"job_name": "opencost", "honor_labels": true, "static_configs": []any{map[string]any{"targets": []string{more.OpenCost}}},
		})
	}
	interval := model.Duration(every).String()
	settings := map[string]any{
		"global":         map[string]any{"scrape_interval": interval, "evaluation_interval": interval},
		"scrape_configs": jobs,
	}
	if more.Rules != "" {
		settings["rule_files"] = []string{more.Rules}
	}
	config, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	address, err := cp.FreeAddress()
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(cp.Root, ".local/bin/prometheus")
	if _, err := cp.StartProgram("prometheus", binary, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn"); err != nil {
		return nil, fmt.Errorf("%w (hack/prometheus.sh installs it)", err)
	}
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		return nil, err
	}
	prometheus := promv1.NewAPI(client)
	return prometheus, cp.WaitFor(ctx, "Prometheus to scrape", func(ctx context.Context) error {
		found, _, err := prometheus.Query(ctx, "up == 1", time.Now())
		if up, ok := found.(model.Vector); err == nil && (!ok || len(up) != want) {
			err = fmt.Errorf("%v, want %d", found, want)
		}
		return err
	})
}

// writeToken waits for the token of the ServiceAccount that may read metrics, and writes it to a
// file.
func writeToken(ctx context.Context, cp *lab.ControlPlane, file string) error {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	return cp.WaitFor(ctx, "a token that may read metrics", func(ctx context.Context) error {
		secret, err := client.CoreV1().Secrets("kube-system").Get(ctx, "spot-aware-scheduler-metrics", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(secret.Data["token"]) == 0 {
			return fmt.Errorf("the Secret %s has no token", secret.Name)
		}
		return os.WriteFile(file, secret.Data["token"], 0o600)
	})
}
