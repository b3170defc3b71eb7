package integration

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// proxy forwards requests to the API server, and can delay the events of watches on all pods. It
// changes nothing else.
type proxy struct {
	server *httptest.Server

	mu   sync.Mutex
	open chan struct{} // closed while no events are delayed
}

// newProxy starts a proxy that stops when the test ends.
func (s *scenario) newProxy() *proxy {
	s.Helper()
	config := controlPlane.Config()
	target, err := url.Parse(config.Host)
	s.Must(err)
	// Each client sends its own credentials.
	transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	s.Must(err)
	p := &proxy{open: make(chan struct{})}
	close(p.open)
	p.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path == "/api/v1/pods" && r.Request.URL.Query().Get("watch") == "true" {
				r.Body = delayedBody{r.Body, p, r.Request.Context().Done()}
			}
			return nil
		},
	})
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	s.Cleanup(func() {
		p.release()
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// kubeconfig writes the scheduler's kubeconfig with this proxy instead of the API server, and
// returns the file.
func (p *proxy) kubeconfig(s *scenario) string {
	s.Helper()
	config, err := clientcmd.LoadFromFile(controlPlane.SchedulerKubeconfig)
	s.Must(err)
	for _, cluster := range config.Clusters {
		cluster.Server = p.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	}
	file := filepath.Join(s.TempDir(), "kubeconfig")
	s.Must(clientcmd.WriteToFile(*config, file))
	return file
}

// hold starts to delay events.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

// release delivers the delayed events, and all later events at once. It may be called twice.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// delayedBody is the response body of a watch.
type delayedBody struct {
	io.ReadCloser
	proxy *proxy
	gone  <-chan struct{} // closed when the client no longer waits for the response
}

func (l delayedBody) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	l.proxy.mu.Lock()
	open := l.proxy.open
	l.proxy.mu.Unlock()
	select {
	case <-open:
	case <-l.gone:
	}
	return n, err
}
