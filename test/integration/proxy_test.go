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

// proxy stands before the API server and can be late with what watches of all pods deliver. It changes nothing.
type proxy struct {
	server *httptest.Server

	mu   sync.Mutex
	open chan struct{} // closed while nothing is held back
}

// newProxy starts a proxy that ends with the test.
func (s *scenario) newProxy() *proxy {
	s.Helper()
	config := controlPlane.Config()
	target, err := url.Parse(config.Host)
	s.must(err)
	// Whoever asks brings a credential.
	transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	s.must(err)
	p := &proxy{open: make(chan struct{})}
	close(p.open)
	p.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path == "/api/v1/pods" && r.Request.URL.Query().Get("watch") == "true" {
				r.Body = late{r.Body, p, r.Request.Context().Done()}
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

// kubeconfig writes the scheduler's kubeconfig with this proxy in the place of the API server, and returns the file.
func (p *proxy) kubeconfig(s *scenario) string {
	s.Helper()
	config, err := clientcmd.LoadFromFile(controlPlane.SchedulerKubeconfig)
	s.must(err)
	for _, cluster := range config.Clusters {
		cluster.Server = p.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	}
	file := filepath.Join(s.TempDir(), "kubeconfig")
	s.must(clientcmd.WriteToFile(*config, file))
	return file
}

// hold begins to hold back.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

// release delivers what was held back, and everything from now on at once. It may be called twice.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// late is the body of a watch's answer.
type late struct {
	io.ReadCloser
	proxy *proxy
	gone  <-chan struct{} // closed when nobody waits for the answer any more
}

func (l late) Read(b []byte) (int, error) {
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
