package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSmallCluster measures a small cluster. The scheduler must know all objects and place the
// pods, and the report must be consistent.
func TestSmallCluster(t *testing.T) {
	o, err := parse([]string{"-nodes", "20", "-pods", "100", "-deployments", "10", "-revisions", "2", "-placed", "5"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	measured, _, err := run(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(measured) != 1 {
		t.Fatalf("%d measurements, want one of the built scheduler", len(measured))
	}
	if m := measured[0]; m.heap <= 0 || m.after < uint64(m.heap) || m.peak < m.after || m.peak < m.synced || m.synced == 0 {
		t.Errorf("%+v", m)
	}
	var table strings.Builder
	if err := report(&table, o, measured); err != nil {
		t.Fatal(err)
	}
	if want := "20 nodes, 100 pods, 10 Deployments with 3 ReplicaSets each"; !strings.Contains(table.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, &table)
	}
}

// TestSmallClusterAtRest measures a small cluster at rest. The controller must know all objects,
// and must not write.
func TestSmallClusterAtRest(t *testing.T) {
	o, err := parse([]string{"-controller", "-nodes", "20", "-pods", "100", "-deployments", "10", "-revisions", "2", "-placed", "5", "-settle", "1s", "-lasts", "5s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, measured, err := run(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(measured) != 1 {
		t.Fatalf("%d measurements, want one of the built controller", len(measured))
	}
	if m := measured[0]; m.heap <= 0 || m.after < uint64(m.heap) || m.peak < m.after || m.synced == 0 || m.cores <= 0 || m.rounds <= 0 || m.round <= 0 {
		t.Errorf("%+v", m)
	}
	var table strings.Builder
	if err := reportRest(&table, o, measured); err != nil {
		t.Fatal(err)
	}
	if want := "20 nodes, 100 pods, 10 Deployments with 3 ReplicaSets each; 20 pods change in a second"; !strings.Contains(table.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, &table)
	}
}

// A controller of another checkout gets the configuration of that checkout.
func TestConfigOf(t *testing.T) {
	checkout := t.TempDir()
	file := filepath.Join(checkout, "bin", "spot-controller")
	if got := configOf(file); got != "" {
		t.Errorf("without a configuration: %q", got)
	}
	want := filepath.Join(checkout, "config", "controller-config.yaml")
	if err := os.Mkdir(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := configOf(file); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "0"}, {"-pods", "1", "-deployments", "2"}, {"-placed", "9", "-deployments", "8"}, {"-churn", "0"}, {"-binary", "file"}, {"more"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
