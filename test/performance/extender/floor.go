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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// floor is a server that makes no decisions. It reads each request and sends a recorded response of
// the extender for that verb. No extender can be faster than this on the same machine with the same
// clients.
type floor struct {
	address string
	process *exec.Cmd
	input   io.Closer
}

// startFloor starts a floor in its own process, with the extender's certificate.
func startFloor(ctx context.Context, files lab.Certificates, answers map[string][]byte) (*floor, error) {
	dir := filepath.Dir(files.Cert)
	for verb, answer := range answers {
		if err := os.WriteFile(filepath.Join(dir, verb+".json"), answer, 0o600); err != nil {
			return nil, err
		}
	}
	f := &floor{process: exec.CommandContext(ctx, os.Args[0], serveFloorVerb, files.Cert, files.Key, dir)}
	f.process.Stderr = os.Stderr
	var err error
	if f.input, err = f.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := f.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("starting the floor: %w", err)
	}
	f.address = strings.TrimSpace(line)
	return f, nil
}

// stop stops the process, which runs until its input ends.
func (f *floor) stop() error {
	_ = f.input.Close()
	return f.process.Wait()
}

// serveFloorVerb is the first argument of a floor process. The next arguments are the certificate,
// the key, and the directory of the responses.
const serveFloorVerb = "serve-floor"

// serveFloor prints its address on standard output, and serves until standard input ends.
func serveFloor(cert, key, dir string) error {
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
