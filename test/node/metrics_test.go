//go:build node

package node

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Some of docs/metrics.md and docs/monitoring.md: a gauge that each replica has, a counter that only the leader has that placed pods,
// and who leads.
const (
	nodesMetric      = "spot_aware_scheduler_nodes{"
	placementsMetric = `spot_aware_scheduler_placements_total{capacity_type="spot",profile="spot-aware-scheduler",reason="budget"}`
	leadsMetric      = `leader_election_master_status{name="kube-scheduler"}`
)

// checkMetrics reads the metrics as Prometheus does with the monitoring overlay: at the addresses of the Service, with the token of the
// ServiceAccount to which the overlay gives the right.
func (c *cluster) checkMetrics() {
	c.kubectl("create", "namespace", "monitoring")
	for _, name := range []string{"prometheus-k8s", "stranger"} {
		c.kubectl("create", "serviceaccount", name, "--namespace=monitoring")
	}
	// Not the whole overlay: the cluster has no ServiceMonitor kind.
	c.kubectl("apply", "--filename", filepath.Join(c.cp.Root, "manifests", "overlays", "monitoring", "rbac.yaml"))
	leading := c.waitForLeader(leader{})
	addresses := c.serviceAddresses()
	if len(addresses) != 2 {
		c.Fatalf("the Service has the addresses %v, expected one of each replica", addresses)
	}
	for pod, address := range addresses {
		for _, refused := range []struct {
			who, token string
			want       int
		}{
			{"nobody", "", http.StatusForbidden},
			{"somebody with a token of his own making", "made.up.token", http.StatusUnauthorized},
			{"a ServiceAccount without the right", c.token("stranger"), http.StatusForbidden},
		} {
			if status, _ := c.scrape(address, refused.token); status != refused.want {
				c.Errorf("%s: %s gets status %d, expected %d", pod, refused.who, status, refused.want)
			}
		}
		status, text := c.scrape(address, c.token("prometheus-k8s"))
		if status != http.StatusOK || !strings.Contains(text, "\n"+nodesMetric) {
			c.Errorf("%s: Prometheus gets status %d, and %d bytes without %s", pod, status, len(text), nodesMetric)
		}
		if got, want := strings.Contains(text, "\n"+placementsMetric), pod == leading.pod; got != want {
			c.Errorf("%s: leads: %t, has %s: %t", pod, want, placementsMetric, got)
		}
		want := leadsMetric + " 0\n"
		if pod == leading.pod {
			want = leadsMetric + " 1\n"
		}
		if !strings.Contains(text, "\n"+want) {
			c.Errorf("%s: leads: %t, expected %s", pod, pod == leading.pod, want)
		}
	}
}

// serviceAddresses returns address and port of the Service's ready endpoints, by pod.
func (c *cluster) serviceAddresses() map[string]string {
	c.Helper()
	slices, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(c.ctx,
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + scheduler})
	c.must(err)
	addresses := map[string]string{}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready && endpoint.TargetRef != nil {
				addresses[endpoint.TargetRef.Name] = net.JoinHostPort(endpoint.Addresses[0], fmt.Sprint(*slice.Ports[0].Port))
			}
		}
	}
	return addresses
}

// scrape returns the answer to a request for /metrics.
func (c *cluster) scrape(address, token string) (status int, body string) {
	c.Helper()
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	c.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The scheduler makes its own certificate.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	c.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	c.must(err)
	return response.StatusCode, string(text)
}

// token returns a token of a ServiceAccount in the namespace monitoring.
func (c *cluster) token(name string) string {
	c.Helper()
	request, err := c.client.CoreV1().ServiceAccounts("monitoring").CreateToken(c.ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	c.must(err)
	return request.Status.Token
}
