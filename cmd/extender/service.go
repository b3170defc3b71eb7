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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lease"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/takeover"
)

// How long who asks may take. kube-scheduler is on the same network, and waits for 2 s altogether (config/extender.yaml).
const (
	headersWithin = 5 * time.Second
	bodyWithin    = 10 * time.Second
	answerWithin  = 20 * time.Second // from the headers on
	idleAtMost    = 2 * time.Minute
	maxHeaders    = 16 << 10
)

// quietAtMost is how long a new leader waits for a scheduler that still binds what it was let bind: 3,000 pods by its default limit. One
// that goes on with the pods of other profiles would keep it waiting for ever.
const quietAtMost = time.Minute

// bindWithin is how long a leader that is told to end keeps the lease, without deciding any more, for what it approved to be bound: nobody
// else knows of that.
const bindWithin = 5 * time.Second

// service serves schedulers, and leads or stands by.
type service struct {
	setup    *setup
	factory  informers.SharedInformerFactory
	decider  *extender.Extender
	synced   func() bool
	election *election
	takeover takeover.Takeover
	getPod   func(context.Context, types.NamespacedName) (types.UID, error)
	// nominated lists the profile's pods without a node that are nominated to one.
	nominated func(context.Context) ([]v1.Pod, error)
}

func newService(setup *setup, config *rest.Config, client kubernetes.Interface, factory informers.SharedInformerFactory,
	decider *extender.Extender, synced func() bool) (*service, error) {
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for takeovers: %w", err)
	}
	pods := metadataClient.Resource(v1.SchemeGroupVersion.WithResource("pods"))
	s := &service{
		setup: setup, factory: factory, decider: decider, synced: synced,
		takeover: takeover.Takeover{
			List: func(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
				return takeover.ListBound(ctx, pods)
			},
			Holds: decider.Holds,
		},
		getPod: func(ctx context.Context, pod types.NamespacedName) (types.UID, error) {
			object, err := pods.Namespace(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return object.UID, nil
		},
		nominated: func(ctx context.Context) ([]v1.Pod, error) {
			// Without a resource version a list is a consistent read.
			list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
				FieldSelector: "spec.nodeName=,status.nominatedNodeName!=,spec.schedulerName=" + setup.profile,
			})
			if err != nil {
				return nil, err
			}
			return list.Items, nil
		},
	}
	if s.election, err = newElection(config, setup.advertiseAddress, s.begin); err != nil {
		return nil, err
	}
	s.election.lock.Remember(lease.SawCapacityLabels, decider.Labels().Seen, decider.Labels().Remember)
	return s, nil
}

// begin is the beginning of a term: it returns when what earlier leaders approved is counted.
func (s *service) begin(ctx context.Context) error {
	return s.decider.TakeOver(ctx, func(ctx context.Context) error {
		_, err := s.takeover.Wait(ctx)
		return err
	}, s.nominated, quietAtMost)
}

// Start implements manager.Runnable: it runs until ctx is done. Then it answers what it has been asked, waits for what it approved to be
// bound, and only after that another replica may lead.
func (s *service) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.setup.bindAddress)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	forwarder := extender.NewForwarder(nil)
	if s.setup.tls != nil {
		listener, forwarder = tls.NewListener(listener, s.setup.tls.server()), extender.NewForwarder(s.setup.tls.client())
	}
	// What serves and leads goes on for a while when ctx is done.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if s.setup.tls != nil {
		go s.setup.tls.run(working)
	}
	handler := extender.NewHandler(s.decider, s.election, forwarder)
	if s.setup.tls != nil {
		handler = s.setup.tls.answerKnown(handler)
	}
	server := newServer(handler)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	klog.FromContext(ctx).Info("Serving", "address", s.setup.bindAddress, "https", s.setup.tls != nil, "profile", s.setup.profile)

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
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		err = errors.Join(err, server.Close())
	}
	s.settle(context.WithoutCancel(ctx))
	end() // gives the lease back
	err = errors.Join(err, <-led)
	s.factory.Shutdown()
	return err
}

// settle returns when all pods are bound that were approved, or after bindWithin. It is to be called when nothing more is decided.
func (s *service) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bindWithin)
	defer cancel()
	for s.election.Leads() == nil && s.decider.Approved() > 0 {
		if takeover.Sleep(ctx, takeover.PollEvery) != nil {
			klog.FromContext(ctx).Info("Ending although approved pods are not known to be bound", "pods", s.decider.Approved(), "waited", bindWithin)
			return
		}
	}
}

// newServer returns the server of schedulers.
func newServer(handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           handler,
		ConnContext:       connected,
		ReadHeaderTimeout: headersWithin, ReadTimeout: bodyWithin, WriteTimeout: answerWithin, IdleTimeout: idleAtMost,
		MaxHeaderBytes: maxHeaders, Protocols: protocols,
		ErrorLog: log.New(connectionErrors{}, "", 0),
	}
}

// connectionErrors logs what net/http has to say of connections: mostly clients without a certificate, of which there may be many.
type connectionErrors struct{}

func (connectionErrors) Write(line []byte) (int, error) {
	klog.V(2).InfoS("Connection refused or broken", "why", string(line))
	return len(line), nil
}
