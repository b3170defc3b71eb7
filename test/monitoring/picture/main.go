// Command picture draws some panels of the dashboard as one SVG. In a lab, spot nodes are reclaimed
// and added again, and a real Prometheus evaluates the dashboard's own queries. The picture is not
// a screenshot of Grafana, which does not run here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/monitoring"
)

func main() {
	out := flag.String("o", "docs/dashboard.svg", "the file to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C terminates the process at once
	if err := run(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// run plays the story and draws it to a file.
func run(ctx context.Context, out string) (err error) {
	root, err := lab.FindRoot()
	if err != nil {
		return err
	}
	dashboard, err := monitoring.ReadDashboard(root)
	if err != nil {
		return err
	}
	s, err := begin(ctx, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.plane.Stop()) }()
	if err := s.play(ctx); err != nil {
		return err
	}
	drawn, err := s.query(ctx, dashboard)
	if err != nil {
		return err
	}
	svg, err := drawn.svg()
	if err != nil {
		return err
	}
	s.progress("writing " + out)
	return os.WriteFile(out, svg, 0o644)
}
