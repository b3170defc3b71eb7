package extender

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// volume is a Secret as the kubelet mounts it. Its files are symbolic links through the link
// ..data, which the kubelet replaces when a file changes.
type volume struct {
	testing.TB
	dir     string
	files   map[string][]byte
	version int
}

func newVolume(t testing.TB, files map[string][]byte) *volume {
	t.Helper()
	v := &volume{TB: t, dir: t.TempDir(), files: map[string][]byte{}}
	for name := range files {
		live.Must(t, os.Symlink(filepath.Join("..data", name), v.path(name)))
	}
	v.set(files)
	return v
}

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

// set replaces some of the files atomically.
func (v *volume) set(files map[string][]byte) {
	v.Helper()
	maps.Copy(v.files, files)
	before := fmt.Sprintf("..%d", v.version)
	v.version++
	now := fmt.Sprintf("..%d", v.version)
	live.Must(v, os.Mkdir(v.path(now), 0o700))
	for name, data := range v.files {
		live.Must(v, os.WriteFile(filepath.Join(v.path(now), name), data, 0o600))
	}
	live.Must(v, os.Symlink(now, v.path("..data_tmp")))
	live.Must(v, os.Rename(v.path("..data_tmp"), v.path("..data")))
	live.Must(v, os.RemoveAll(v.path(before)))
}

// TestCertificatesAreRenewed replaces every certificate and their CA under a stock kube-scheduler,
// in the order of docs/install.md, while pods are created. kube-scheduler uses the standby replica,
// which redirects it to the leader.
func TestCertificatesAreRenewed(t *testing.T) {
	const reread = 2 * time.Minute // the extender reads files again at once, or after a minute if it missed the change
	contents := func(file string) []byte {
		data, err := os.ReadFile(file)
		live.Must(t, err)
		return data
	}
	before, err := extendertest.MakeCertificates(t.TempDir())
	live.Must(t, err)
	after, err := extendertest.MakeCertificates(t.TempDir())
	live.Must(t, err)
	both := slices.Concat(contents(before.CA), contents(after.CA))
	serving := newVolume(t, map[string][]byte{
		"ca.crt": contents(before.CA), "tls.crt": contents(before.Cert), "tls.key": contents(before.Key),
	})
	// kube-scheduler reads its CA only at its start, so it has both from the start.
	asking := newVolume(t, map[string][]byte{"ca.crt": both, "tls.crt": contents(before.ClientCert), "tls.key": contents(before.ClientKey)})

	s := live.NewScenario(t, controlPlane, client, slices.Concat(live.OnDemand(2, 20), live.Spot(2, 20))...)
	files := extendertest.Certificates{CA: serving.path("ca.crt"), Cert: serving.path("tls.crt"), Key: serving.path("tls.key")}
	leader := startExtenderWith(t, lab.ExtenderOptions{Certificates: files})
	old := newClient(t, clientTLS(t, before.CA, before.ClientCert, before.ClientKey))
	awaitLeader(t, old, leader.Address, "od-1")
	standby := startExtenderWith(t, lab.ExtenderOptions{Certificates: files})
	s.Audit(nil, audit.Options{})
	startStock(t, standby.Address, func(extender map[string]any) {
		tls := extender["tlsConfig"].(map[string]any)
		tls["caFile"], tls["certFile"], tls["keyFile"] = asking.path("ca.crt"), asking.path("tls.crt"), asking.path("tls.key")
	})
	place := func(app string) {
		t.Helper()
		deploy(s, app, 4, 1)
		s.Eventually(live.Soon, s.HasSplit(app, live.Split{OnDemand: 1, Spot: 3}))
	}
	ask := func(c *http.Client, e *lab.Extender) error {
		_, err := feasible(post(c, e.Address, "filter", bytes.NewReader(filterRequest(t, "first", "od-1"))))
		return err
	}
	// answered returns a check that each replica accepts (or rejects) a new connection with these
	// certificates.
	answered := func(want bool, config *tls.Config) func() error {
		return func() error {
			for _, e := range []*lab.Extender{leader, standby} {
				c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: live.Soon}
				if err := ask(c, e); (err == nil) != want {
					return fmt.Errorf("%s: %v, want an answer: %t", e.Address, err, want)
				}
			}
			return nil
		}
	}
	place("old-certificates")

	serving.set(map[string][]byte{"ca.crt": both})
	live.Must(t, live.Until(t.Context(), reread, answered(true, clientTLS(t, before.CA, after.ClientCert, after.ClientKey))))
	place("both-authorities")

	serving.set(map[string][]byte{"tls.crt": contents(after.Cert), "tls.key": contents(after.Key)})
	asking.set(map[string][]byte{"tls.crt": contents(after.ClientCert), "tls.key": contents(after.ClientKey)})
	live.Must(t, live.Until(t.Context(), reread, answered(true, clientTLS(t, after.CA, after.ClientCert, after.ClientKey))))
	live.Must(t, answered(true, clientTLS(t, after.CA, before.ClientCert, before.ClientKey))())
	place("new-certificates")

	// Until now the extender accepts the old certificates, on connections that are open from the
	// start.
	live.Must(t, ask(old, leader))
	serving.set(map[string][]byte{"ca.crt": contents(after.CA)})
	unauthorized := false
	live.Must(t, live.Until(t.Context(), reread, func() error {
		status, _, err := post(old, leader.Address, "filter", bytes.NewReader(filterRequest(t, "first", "od-1")))
		unauthorized = unauthorized || status == http.StatusUnauthorized
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("client with a certificate of the old CA: status %d, %v, want an error about its certificate", status, err)
		}
		return nil
	}))
	if !unauthorized {
		t.Error("the open connection of a client of the old CA was not rejected with 401")
	}
	live.Must(t, live.Until(t.Context(), reread, answered(false, clientTLS(t, after.CA, before.ClientCert, before.ClientKey))))
	live.Must(t, live.Until(t.Context(), live.Soon, answered(true, clientTLS(t, after.CA, after.ClientCert, after.ClientKey))))
	place("new-authority")
	s.Auditor.Require(t)
	if n, err := live.Metric(t.Context(), leader.Process, "apiserver_client_certificate_expiration_seconds_count", nil); err != nil || n == 0 {
		t.Errorf("%.0f observed client certificates, %v; SpotExtenderCertificateEnds needs them", n, err)
	}
}
