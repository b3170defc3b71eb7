package safety

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// Ledger is the name of the ConfigMap with the moves of the last hour, one a line:
	//
	//	TIME ID CAUSE NUMBER NAMESPACE WORKLOAD
	//
	// It only adds to what the leader remembers. A line that cannot be parsed is ignored.
	Ledger = "spot-controller-ledger"
	// ledgerKey is its only key.
	ledgerKey = "moves"
)

const (
	// writeInterval is the least time between two writes. flushInterval is that time if no request
	// waits for the write.
	writeInterval, flushInterval = time.Second, time.Minute
	// writeTimeout limits a write, with its retries after conflicts.
	writeTimeout = 8 * time.Second
	// maxLine is the length of the longest line, with a namespace of 63 characters.
	maxLine = 400
	// maxEntries limits the entries of a ledger that another client has edited: with maxLine, to
	// the size of a ConfigMap. It exceeds what this project writes.
	maxEntries = 2500
)

// startWriting makes sure that a goroutine writes the ledger. The caller has locked g.mu.
func (g *Gate) startWriting() {
	switch {
	case g.Ledgers == nil:
	case !g.writing:
		g.writing = true
		go g.write()
	default:
		select {
		case g.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// write writes the ledger until it contains all changes.
func (g *Gate) write() {
	for {
		g.mu.Lock()
		interval := writeInterval
		if len(g.pending) == 0 {
			interval = flushInterval
		}
		if g.writing = len(g.pending) > 0 || g.changed; !g.writing {
			g.mu.Unlock()
			return
		}
		wait := g.written + interval - g.age()
		if wait > 0 {
			g.mu.Unlock()
			select {
			case <-time.After(wait):
			case <-g.wake:
			}
			continue
		}
		batch := g.pending
		g.pending, g.changed = nil, false
		g.mu.Unlock()
		g.save(batch)
	}
}

// save writes all entries. The requests of the batch wait for it. It answers those first that
// exceed a limit together with entries of other processes.
func (g *Gate) save(batch []*entry) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	waited := len(batch) > 0
	var err error
	for retry := true; retry; {
		if err = g.read(ctx); err != nil {
			break
		}
		var ledger *v1.ConfigMap
		var withdrawn map[string]bool
		if ledger, withdrawn, batch = g.render(batch); waited && len(batch) == 0 {
			return
		}
		err = g.put(ctx, ledger, withdrawn)
		// Another client has changed, created or deleted the ledger.
		retry = apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
		if retry {
			select {
			case <-time.After(writeInterval):
			case <-ctx.Done():
				retry = false
			}
		}
	}
	if err != nil {
		ledgerWrites.WithLabelValues("failed").Inc()
		err = fmt.Errorf("writing the ledger of moves: %w", err)
	}
	for _, e := range batch {
		e.done <- err
	}
	if first := g.failing.Swap(err != nil); err != nil && !first {
		klog.Background().Error(err, "Ledger not written; moves that limits bound wait", "configMap", Ledger)
	}
}

// read reads the ledger unless its version is known, and adds its entries.
func (g *Gate) read(ctx context.Context) error {
	g.mu.Lock()
	known := g.stored != nil
	g.mu.Unlock()
	if known {
		return nil
	}
	stored, err := g.Ledgers.Get(ctx, Ledger, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		stored, err = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Ledger, Labels: map[string]string{
			"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller",
		}}}, nil
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stored = stored
	g.merge(stored.Data[ledgerKey])
	return nil
}

// put writes the ledger. The error of a write that may have been performed makes the next save read
// the ledger first.
func (g *Gate) put(ctx context.Context, ledger *v1.ConfigMap, withdrawn map[string]bool) (err error) {
	g.mu.Lock()
	g.written = g.age()
	g.mu.Unlock()
	if ledger.ResourceVersion == "" {
		ledger, err = g.Ledgers.Create(ctx, ledger, metav1.CreateOptions{})
	} else {
		ledger, err = g.Ledgers.Update(ctx, ledger, metav1.UpdateOptions{})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stored = ledger; err != nil {
		g.stored = nil
		return err
	}
	ledgerWrites.WithLabelValues("succeeded").Inc()
	for id := range withdrawn { // the ledger does not contain them any more
		delete(g.withdrawn, id)
	}
	return nil
}

// render returns the ledger with all entries, the withdrawn moves that it omits, and the rest of
// the batch. It removes the moves of the batch that a limit now refuses, because the ledger had
// entries of other processes.
func (g *Gate) render(batch []*entry) (ledger *v1.ConfigMap, withdrawn map[string]bool, rest []*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range batch {
		if g.entries[e.id] != e { // its request waits no more
			continue
		}
		if err := g.refusal(e); err != nil {
			delete(g.entries, e.id)
			e.done <- err
			continue
		}
		rest = append(rest, e)
	}
	g.expire()
	entries := slices.SortedFunc(maps.Values(g.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	var text strings.Builder
	for _, e := range entries {
		// Rounded up, so that no entry becomes older with each leader. The wall clock may have been
		// set since e was counted.
		at := g.Clock.Now().Add(e.at - g.age() + time.Second - 1).UTC().Truncate(time.Second)
		fmt.Fprintln(&text, at.Format(time.RFC3339), e.id, e.cause, e.n, e.namespace, e.workload)
	}
	ledger = g.stored.DeepCopy()
	ledger.Data = map[string]string{ledgerKey: text.String()}
	return ledger, maps.Clone(g.withdrawn), rest
}

// merge adds the entries in the text of a ledger that this process does not know. An entry of the
// future counts as of now: a clock was wrong. Of too many entries, the newest count.
func (g *Gate) merge(text string) {
	unreadable := 0
	for line := range strings.Lines(text) {
		e, at, ok := parse(strings.TrimSpace(line))
		if !ok {
			unreadable++
			continue
		}
		if g.withdrawn[e.id] || g.entries[e.id] != nil {
			continue
		}
		if age := max(g.Clock.Now().Sub(at), 0); age < window+margin {
			e.at = g.age() - age
			g.entries[e.id] = e
		}
	}
	if unreadable > 0 {
		klog.Background().Info("Ledger lines not readable, and ignored", "configMap", Ledger, "lines", unreadable)
	}
	if len(g.entries) <= maxEntries {
		return
	}
	foreign := slices.DeleteFunc(slices.Collect(maps.Values(g.entries)), func(e *entry) bool { return e.done != nil })
	slices.SortFunc(foreign, func(a, b *entry) int { return cmp.Compare(a.at, b.at) })
	for _, e := range foreign[:min(len(g.entries)-maxEntries, len(foreign))] {
		delete(g.entries, e.id)
	}
}

// parse returns the entry of a line of the ledger, and when it was counted.
func parse(line string) (e *entry, at time.Time, ok bool) {
	f := strings.Fields(line)
	if len(f) != 6 || len(line) > maxLine {
		return nil, at, false
	}
	at, timeErr := time.Parse(time.RFC3339, f[0])
	n, numberErr := strconv.Atoi(f[3])
	e = &entry{id: f[1], cause: Cause(f[2]), n: n, namespace: f[4], workload: f[5]}
	_, known := Rules[e.cause]
	return e, at, known && timeErr == nil && numberErr == nil && n > 0
}
