package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// Timeouts of clients. kube-scheduler is on the same network, and waits at most 2 s in total
// (config/extender.yaml).
const (
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 10 * time.Second
	answerTimeout  = 20 * time.Second // from the headers on
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// maxTakeover is the maximum time that a new leader waits for a scheduler that still binds pods
// which an earlier leader approved. By default the scheduler's rate limit permits 3,000 bindings in
// this time. Without this limit, a scheduler that binds pods of other profiles could block the
// leader forever.
const maxTakeover = time.Minute

// bindingTimeout is the maximum time that a stopping leader waits for the bindings of pods that it
// approved. It still holds the lease, but makes no decisions. Other replicas do not know these
// approvals.
const bindingTimeout = 5 * time.Second

// service serves schedulers, as leader or as standby.
type service struct {
	setup    *setup
	client   kubernetes.Interface
	factory  informers.SharedInformerFactory
	decider  *extender.Extender
	synced   func() bool
	election *election
	takeover leader.Takeover
}

// startTerm returns when the approvals of earlier leaders are counted.
func (s *service) startTerm(ctx context.Context) error {
	return s.decider.TakeOver(ctx, s.takeover.Wait, s.nominated, maxTakeover)
}

// nominated lists the profile's unbound pods with a nomination.
func (s *service) nominated(ctx context.Context) ([]v1.Pod, error) {
	// A list without a resource version is a consistent read.
	list, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=,status.nominatedNodeName!=,spec.schedulerName=" + s.setup.profile,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// getPod returns the UID of a pod.
func (s *service) getPod(ctx context.Context, pod types.NamespacedName) (types.UID, error) {
	object, err := s.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return object.UID, nil
}

// Start implements manager.Runnable: it runs until ctx is done. Then it answers pending requests,
// waits for the bindings of approved pods, and releases the lease last.
func (s *service) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.setup.bindAddress)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	// After ctx is done, the server and the election continue for a while.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	certificates := s.setup.tls
	handler := extender.NewHandler(s.decider, s.election, certificates.dial)
	server := newServer(certificates.requireClient(handler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(tls.NewListener(listener, certificates.server())) }()
	klog.FromContext(ctx).Info("Serving", "address", s.setup.bindAddress, "profile", s.setup.profile)

	s.factory.Start(working.Done())
	led := make(chan error, 1)
	if cache.WaitForCacheSync(ctx.Done(), s.synced) {
		go s.decider.Sweep(working, s.getPod)
		go func() { led <- s.election.run(working) }()
	} else {
		led <- nil
	}
	select {
	case <-ctx.Done():
	case err = <-served:
	case err = <-led:
		led <- nil
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		err = errors.Join(err, server.Close())
	}
	s.waitForBindings(context.WithoutCancel(ctx))
	end() // releases the lease
	err = errors.Join(err, <-led)
	s.factory.Shutdown()
	return err
}

// waitForBindings returns when all approved pods are bound, or after bindingTimeout. It must be
// called after the last decision.
func (s *service) waitForBindings(ctx context.Context) {
	bound := func(context.Context) (bool, error) {
		return s.election.Leads() != nil || s.decider.Approved() == 0, nil
	}
	if wait.PollUntilContextTimeout(ctx, leader.PollEvery, bindingTimeout, true, bound) != nil {
		klog.FromContext(ctx).Info("Stopped before approved pods were known to be bound", "pods", s.decider.Approved(), "waited", bindingTimeout)
	}
}

// newServer returns the server for schedulers.
func newServer(handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, Protocols: protocols,
		ErrorLog: log.New(connectionErrors{}, "", 0),
	}
}

// connectionErrors logs the connection errors of net/http. Most are from clients without a
// certificate, which may be frequent.
type connectionErrors struct{}

func (connectionErrors) Write(line []byte) (int, error) {
	klog.V(2).InfoS("Connection rejected or broken", "err", string(line))
	return len(line), nil
}
