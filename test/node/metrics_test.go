//go:build node

package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metrics of docs/metrics.md and docs/monitoring.md: a gauge of each replica, a counter that only
// the leader increments, and the leader status. Counters start at 0.
const (
	nodesMetric      = "spot_aware_scheduler_nodes{"
	placementsMetric = `spot_aware_scheduler_placements_total{capacity_type="spot",profile="spot-aware-scheduler",reason="budget"}`
	leadsMetric      = `leader_election_master_status{name="kube-scheduler"}`
)

// checkMetrics reads the metrics like Prometheus with the monitoring overlay: at the addresses of
// the Service, with the token in the overlay's Secret.
func (c *cluster) checkMetrics() {
	c.kubectl("create", "serviceaccount", "stranger", "--namespace="+namespace)
	// Not the whole overlay, because the cluster does not have the kind ServiceMonitor.
	c.kubectl("apply", "--filename", filepath.Join(c.cp.Root, "manifests", "overlays", "monitoring", "rbac.yaml"))
	var token string
	c.eventually("a token in the Secret", func() error {
		secret, err := c.client.CoreV1().Secrets(namespace).Get(c.ctx, "spot-aware-scheduler-metrics", metav1.GetOptions{})
		if token = string(secret.Data["token"]); err == nil && token == "" {
			err = errors.New("the Secret has no token")
		}
		return err
	})
	leading := c.waitForLeader(leader{})
	addresses := c.serviceAddresses()
	if len(addresses) != 2 {
		c.Fatalf("the Service has the addresses %v, expected one for each replica", addresses)
	}
	for pod, address := range addresses {
		for _, refused := range []struct {
			client, token string
			want          int
		}{
			{"a client without a token", "", http.StatusForbidden},
			{"a client with a forged token", "made.up.token", http.StatusUnauthorized},
			{"a ServiceAccount without the right", c.token("stranger"), http.StatusForbidden},
		} {
			if status, _ := c.scrape(address, refused.token); status != refused.want {
				c.Errorf("%s: %s gets status %d, expected %d", pod, refused.client, status, refused.want)
			}
		}
		status, text := c.scrape(address, token)
		for _, metric := range []string{nodesMetric, placementsMetric} {
			if status != http.StatusOK || !strings.Contains(text, "\n"+metric) {
				c.Errorf("%s: Prometheus gets status %d, and %d bytes without %s", pod, status, len(text), metric)
			}
		}
		if counted, leads := !strings.Contains(text, "\n"+placementsMetric+" 0\n"), pod == leading.pod; counted != leads {
			c.Errorf("%s: leads: %t, has counted %s: %t", pod, leads, placementsMetric, counted)
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

// scrape returns the response to a request for /metrics.
func (c *cluster) scrape(address, token string) (status int, body string) {
	c.Helper()
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	c.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The scheduler generates its own certificate.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	c.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	c.must(err)
	return response.StatusCode, string(text)
}

// token returns a token of a ServiceAccount in the scheduler's namespace.
func (c *cluster) token(name string) string {
	c.Helper()
	request, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(c.ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	c.must(err)
	return request.Status.Token
}
