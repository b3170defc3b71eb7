package extender

import (
	"bytes"
	"io"
	"net/http/httptest"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func BenchmarkHTTPS(b *testing.B) {
	w := newLargeWorld(b)
	server := httptest.NewTLSServer(NewHandler(w.Extender, &role{}, NewForwarder(nil)))
	defer server.Close()
	body := asJSON(b, extenderv1.ExtenderArgs{Pod: podOf("web", 0), NodeNames: &w.names})
	c := server.Client()
	for _, verb := range []string{"filter", "prioritize"} {
		b.Run(verb, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := c.Post(server.URL+"/"+verb, "application/json", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		})
	}
}
