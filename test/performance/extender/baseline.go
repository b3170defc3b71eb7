package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
)

// baseline is a server that makes no decisions. It reads each request and sends a recorded response
// of the extender for that verb. No extender can be faster than this on the same machine with the
// same clients.
type baseline struct {
	address string
	process *exec.Cmd
	input   io.Closer
}

// startBaseline starts a baseline in its own process, with the extender's certificate.
func startBaseline(ctx context.Context, files extendertest.Certificates, responses map[string][]byte) (*baseline, error) {
	dir := filepath.Dir(files.Cert)
	for verb, response := range responses {
		if err := os.WriteFile(filepath.Join(dir, verb+".json"), response, 0o600); err != nil {
			return nil, err
		}
	}
	b := &baseline{process: exec.CommandContext(ctx, os.Args[0], serveBaselineVerb, files.Cert, files.Key, dir)}
	b.process.Stderr = os.Stderr
	var err error
	if b.input, err = b.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := b.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("starting the baseline: %w", err)
	}
	b.address = strings.TrimSpace(line)
	return b, nil
}

// stop stops the process, which runs until its input ends.
func (b *baseline) stop() error {
	_ = b.input.Close()
	return b.process.Wait()
}

// serveBaselineVerb is the first argument of a baseline process. The next arguments are the
// certificate, the key, and the directory of the responses.
const serveBaselineVerb = "serve-baseline"

// serveBaseline prints its address on standard output, and serves until standard input ends.
func serveBaseline(cert, key, dir string) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, verb := range verbs {
		answer, err := os.ReadFile(filepath.Join(dir, verb+".json"))
		if err != nil {
			return err
		}
		mux.HandleFunc("POST /"+verb, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
			_, _ = w.Write(answer)
		})
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
	}()
	_ = http.Serve(listener, mux) // returns when the listener is closed
	return nil
}
