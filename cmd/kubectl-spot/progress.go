package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// progressAfter is how long a command runs before it reports progress, and how often it does then.
const progressAfter = time.Second

// reportProgress writes to a terminal how many objects have been read, in one line that it removes
// when the returned function is called. It writes nothing to anything but a terminal.
func reportProgress(out io.Writer, read *atomic.Int64) (stop func()) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() { writeProgress(ctx, out, read) })
	return func() {
		cancel()
		writer.Wait()
	}
}

// writeProgress writes the line until ctx is done.
func writeProgress(ctx context.Context, out io.Writer, read *atomic.Int64) {
	const clear = "\r\x1b[K"
	ticker := time.NewTicker(progressAfter)
	defer ticker.Stop()
	written := false
	for {
		select {
		case <-ctx.Done():
			if written {
				fmt.Fprint(out, clear)
			}
			return
		case <-ticker.C:
			written = true
			fmt.Fprintf(out, "%sReading the cluster: %d objects so far", clear, read.Load())
		}
	}
}
