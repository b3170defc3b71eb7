package leader

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// An API server that has just started refuses requests until it has loaded the roles.
	checkAttempts, checkEvery = 6, 2 * time.Second
	checkTimeout              = 5 * time.Second
	// newestMinor is the newest minor version that make test-skew tests (docs/versions.md).
	newestMinor = 37
)

// Namespace returns the namespace of this process' installation, which contains its Leases. The
// manifests set POD_NAMESPACE to the namespace of the pod.
func Namespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), metav1.NamespaceSystem) }

// CheckInstallation returns an error if this process does not belong to the installation of the
// cluster: if it may not list Leases. Only the ServiceAccounts that the ClusterRoleBindings name
// may, and an admission policy keeps another installation from changing these. A Lease in another
// namespace is no evidence, because its users may write it. name is the name of the
// ClusterRoleBinding. If the API server is unavailable, CheckInstallation logs that and returns
// nil, because a restarted program must not wait longer than necessary. It also logs a warning if
// the API server is newer than the tested versions.
func CheckInstallation(ctx context.Context, config *rest.Config, name string) error {
	config = rest.CopyConfig(config)
	config.Timeout = checkTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating the client that looks for other installations: %w", err)
	}
	return checkInstallation(ctx, client, name)
}

func checkInstallation(ctx context.Context, client kubernetes.Interface, name string) error {
	for attempt := 1; ; attempt++ {
		_, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			warnIfUntested(ctx, client.Discovery())
			return nil
		case !apierrors.IsForbidden(err):
			klog.FromContext(ctx).Error(err, "Check for another installation failed")
			return nil
		case attempt == checkAttempts:
			return fmt.Errorf("%w; either the manifests were not applied completely, or spot-aware-scheduler is installed in another namespace, "+
				"which \"kubectl get clusterrolebinding %s -o wide\" shows: a cluster can have one installation", err, name)
		}
		klog.FromContext(ctx).Error(err, "Check for another installation refused, will retry")
		if err := Sleep(ctx, checkEvery); err != nil {
			return err
		}
	}
}

func warnIfUntested(ctx context.Context, client discovery.ServerVersionInterface) {
	info, err := client.ServerVersion()
	if err != nil {
		return // requests that matter report it
	}
	if server, err := version.ParseGeneric(info.GitVersion); err == nil && server.Minor() > newestMinor {
		klog.FromContext(ctx).Info("Warning: this program was not tested on this version of Kubernetes", "version", info.GitVersion,
			"newestTested", fmt.Sprintf("1.%d", newestMinor))
	}
}
