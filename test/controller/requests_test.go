package controller

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
)

// auditPolicy makes the API server log the controller's requests, with the responses to changes
// of nodes.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: RequestResponse
  users: ["system:serviceaccount:kube-system:spot-controller"]
  verbs: [create, update, patch, delete]
  resources: [{group: "", resources: [nodes]}]
- level: Metadata
  users: ["system:serviceaccount:kube-system:spot-controller"]
- level: None
`

// request is a request of a controller.
type request struct {
	at                                                 time.Time
	verb, resource, subresource, namespace, name, code string
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %s/%s %s/%s: %s", r.at.Format("15:04:05.000"), r.verb, r.resource, r.subresource, r.namespace, r.name, r.code)
}

// writes reports whether the request changes an object, other than leases, events, and reviews of
// clients of the metrics endpoint.
func (r request) writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.verb) &&
		!slices.Contains([]string{"leases", "events", "tokenreviews", "subjectaccessreviews"}, r.resource)
}

// auditLog reads the API server's audit log. Its methods may be called from any goroutine.
type auditLog struct {
	file string

	mu       sync.Mutex
	offset   int64
	requests []request
	nodes    map[string]map[uint64]bool // the versions of nodes that a controller wrote
	// unanswered contains the nodes to which a controller sent a write and ended before the answer.
	// The API server may have written a version that it did not log.
	unanswered map[string]bool
}

// since returns the requests that the API server received at this moment or later, in the order
// of their completion.
func (l *auditLog) since(moment time.Time) ([]request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.read()
	var found []request
	for _, r := range l.requests {
		if !r.at.Before(moment) {
			found = append(found, r)
		}
	}
	return found, err
}

// author returns who wrote this version of a node.
func (l *auditLog) author(node string, resourceVersion uint64) audit.Author {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		panic(err) // the test owns the file
	}
	switch {
	case l.nodes[node][resourceVersion]:
		return audit.Controller
	case l.unanswered[node]:
		return audit.PerhapsController
	default:
		return audit.OtherActor
	}
}

// read parses the complete lines that were added since the last call.
func (l *auditLog) read() error {
	log, err := os.Open(l.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no request yet
	}
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.offset += int64(len(line))
		if err := l.parse(line); err != nil {
			return fmt.Errorf("reading %s: %w", l.file, err)
		}
	}
}

func (l *auditLog) parse(line []byte) error {
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	if event.ObjectRef == nil {
		return nil // health, discovery
	}
	r := request{
		at: event.RequestReceivedTimestamp.Time, verb: event.Verb, resource: event.ObjectRef.Resource, subresource: event.ObjectRef.Subresource,
		namespace: event.ObjectRef.Namespace, name: event.ObjectRef.Name,
	}
	if event.ResponseStatus != nil {
		r.code = strconv.Itoa(int(event.ResponseStatus.Code))
	}
	l.requests = append(l.requests, r)
	if r.resource != "nodes" || !r.writes() {
		return nil
	}
	if event.ResponseStatus == nil || event.ResponseStatus.Code >= http.StatusInternalServerError {
		l.unanswered[r.name] = true
		return nil
	}
	if event.ResponseObject == nil {
		return nil
	}
	var answer metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.ResponseObject.Raw, &answer); err != nil {
		return err
	}
	version, err := strconv.ParseUint(answer.ResourceVersion, 10, 64)
	if err != nil {
		return nil // a Status: the request failed
	}
	if l.nodes[r.name] == nil {
		l.nodes[r.name] = map[uint64]bool{}
	}
	l.nodes[r.name][version] = true
	return nil
}

// writes returns the changes that controllers made or attempted since this moment.
func (s *scenario) writes(since time.Time) []request {
	s.Helper()
	all, err := requestLog.since(since)
	s.Must(err)
	return slices.DeleteFunc(all, func(r request) bool { return !r.writes() })
}

// rateExcess returns the largest number of requests for these resources by which controllers
// exceeded a rate since this moment.
func (s *scenario) rateExcess(since time.Time, perSecond float64, resources ...string) (most int) {
	s.Helper()
	for i, r := range s.requests(since, resources...) {
		most = max(most, i+1-int(perSecond*r.at.Sub(since).Seconds()))
	}
	return most
}

// mostRequestsPerSecond returns the largest number of requests for these resources within one
// second since this moment.
func (s *scenario) mostRequestsPerSecond(since time.Time, resources ...string) int {
	s.Helper()
	all := s.requests(since, resources...)
	most, first := 0, 0
	for i, r := range all {
		for r.at.Sub(all[first].at) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// requests returns the controllers' requests for these resources since this moment, in the order
// of their reception.
func (s *scenario) requests(since time.Time, resources ...string) []request {
	s.Helper()
	all, err := requestLog.since(since)
	s.Must(err)
	all = slices.DeleteFunc(all, func(r request) bool { return !slices.Contains(resources, r.resource) })
	slices.SortFunc(all, func(a, b request) int { return a.at.Compare(b.at) })
	return all
}
