package main

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: a line appears after a second, changes each second, and is removed in the end.
func TestProgress(t *testing.T) {
	for took, want := range map[time.Duration]string{
		progressAfter - 1:   "",
		2*progressAfter + 1: "\r\x1b[KReading the cluster: 5 objects so far\r\x1b[KReading the cluster: 5 objects so far\r\x1b[K",
		progressAfter + 1:   "\r\x1b[KReading the cluster: 5 objects so far\r\x1b[K",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			var read atomic.Int64
			read.Store(5)
			ctx, cancel := context.WithTimeout(t.Context(), took)
			defer cancel()
			writeProgress(ctx, &out, &read)
			if out.String() != want {
				t.Errorf("after %s: %q, want %q", took, out.String(), want)
			}
		})
	}
}

// TestNoTerminal: what is not a terminal gets no progress.
func TestNoTerminal(t *testing.T) {
	var out bytes.Buffer
	reportProgress(&out, new(atomic.Int64))()
	if out.Len() > 0 {
		t.Errorf("wrote %q", out.String())
	}
}
