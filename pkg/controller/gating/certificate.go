package gating

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// renewBefore is the remaining validity at which a replica replaces its certificate, which is valid
// for a year. maxAuthorities is how many authorities the webhook's configuration keeps: of all
// replicas, and of some replicas that have ended.
const (
	renewBefore    = 30 * 24 * time.Hour
	maxAuthorities = 16
)

// certificate is the certificate of one replica for the webhook. The replica generates it, with an
// authority of its own, and adds the authority to the webhook's configuration. So the private key
// exists only in the memory of this process, and no Secret is necessary.
type certificate struct {
	client kubernetes.Interface
	ips    []net.IP // further names

	own       *tls.Certificate
	authority *x509.Certificate // signed only own; its key is not kept
	// trusted is the last certificate whose authority was in the configuration; nil before.
	trusted atomic.Pointer[tls.Certificate]
}

func (c *certificate) Start(ctx context.Context) error {
	for {
		if err := c.publish(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Certificate of the webhook not published, new pods may get no capacity gate")
		}
		if leader.Sleep(ctx, checkInterval) != nil {
			return nil
		}
	}
}

func (c *certificate) NeedLeaderElection() bool { return false }

// get returns the certificate to serve. It returns an error until the API server trusts it.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if trusted := c.trusted.Load(); trusted != nil {
		return trusted, nil
	}
	return nil, errors.New("the certificate of the webhook is not published")
}

// publish generates or renews the certificate, and adds its authority to the configuration if it is
// not there, for example because a manifest was applied again. Only then it is served.
func (c *certificate) publish(ctx context.Context) error {
	if c.own == nil || time.Until(c.authority.NotAfter) < renewBefore {
		if err := c.generate(); err != nil {
			return fmt.Errorf("generating a certificate: %w", err)
		}
	}
	configurations := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration, err := configurations.Get(ctx, webhookConfiguration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// A patch keeps the fields that this version of client-go does not know.
	operations := []map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": configuration.ResourceVersion}}
	for i := range configuration.Webhooks {
		if service := configuration.Webhooks[i].ClientConfig.Service; service != nil && service.Namespace != leader.Namespace() {
			return fmt.Errorf("MutatingWebhookConfiguration %s belongs to an installation in namespace %s, not %s: apply the manifests again",
				webhookConfiguration, service.Namespace, leader.Namespace())
		}
		if bundle, missing := c.add(configuration.Webhooks[i].ClientConfig.CABundle); missing {
			path := fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i)
			operations = append(operations, map[string]any{"op": "add", "path": path, "value": bundle})
		}
	}
	if len(operations) > 1 {
		patch, err := json.Marshal(operations)
		if err != nil {
			return err
		}
		if _, err := configurations.Patch(ctx, webhookConfiguration, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Published certificate of the webhook", "validUntil", c.authority.NotAfter)
	}
	c.trusted.Store(c.own)
	return nil
}

func (c *certificate) generate() error {
	chain, key, err := certutil.GenerateSelfSignedCertKey(webhookHost(), c.ips, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return err
	}
	authority, err := x509.ParseCertificate(pair.Certificate[1])
	if err != nil {
		return err
	}
	c.own, c.authority = &pair, authority
	return nil
}

// add returns a bundle with the authority of this replica, and whether it was missing. It omits
// expired authorities, and the oldest beyond the maximum.
func (c *certificate) add(bundle []byte) (with []byte, missing bool) {
	authorities, _ := certutil.ParseCertsPEM(bundle) // what is not a certificate is omitted
	if slices.ContainsFunc(authorities, c.authority.Equal) {
		return bundle, false
	}
	authorities = slices.DeleteFunc(authorities, func(a *x509.Certificate) bool { return time.Now().After(a.NotAfter) })
	authorities = append(authorities, c.authority)
	authorities = authorities[max(0, len(authorities)-maxAuthorities):]
	with, err := certutil.EncodeCertificates(authorities...)
	return with, err == nil
}
