package leader

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// clockSkew is by how much the clock of the reader may be ahead of the holder's. A lease counts
	// as held for so long after it has expired.
	clockSkew = time.Minute
	// An API server that has just started refuses requests until it has loaded the roles.
	checkAttempts, checkEvery = 6, 2 * time.Second
	checkTimeout              = 5 * time.Second
)

// Namespace returns the namespace of this process' installation, which contains its Leases. The
// manifests set POD_NAMESPACE to the namespace of the pod.
func Namespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), metav1.NamespaceSystem) }

// Held reports whether a process holds the lease at now.
func Held(lease *coordinationv1.Lease, now time.Time) bool {
	renewed := cmp.Or(lease.Spec.RenewTime, &metav1.MicroTime{})
	valid := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return ptr.Deref(lease.Spec.HolderIdentity, "") != "" && now.Sub(renewed.Time) <= valid+clockSkew
}

// CheckInstallation returns an error if another installation runs: if a process holds the Lease
// name outside this installation's namespace. A program calls it before it acquires a Lease. It also returns an
// error without the right to list Leases, because only the installation that the
// ClusterRoleBindings name has it. If the API server is unavailable, it logs that and returns nil,
// because a restarted program must not wait longer than necessary.
func CheckInstallation(ctx context.Context, config *rest.Config, namespace, name string) error {
	config = rest.CopyConfig(config)
	config.Timeout = checkTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating the client that looks for other installations: %w", err)
	}
	return checkInstallation(ctx, client, namespace, name)
}

func checkInstallation(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	for attempt := 1; ; attempt++ {
		leases, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, named)
		switch {
		case err == nil:
			return anotherHolds(leases.Items, namespace, name, time.Now())
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

// anotherHolds returns an error that names a Lease of this name outside of namespace, if one is held.
func anotherHolds(leases []coordinationv1.Lease, namespace, name string, now time.Time) error {
	for i := range leases {
		lease := &leases[i]
		if lease.Name == name && lease.Namespace != namespace && Held(lease, now) {
			return fmt.Errorf("another installation of spot-aware-scheduler runs in namespace %s: %s holds the Lease %s/%s. "+
				"A cluster can have one installation, so this one in namespace %s does not start", lease.Namespace,
				*lease.Spec.HolderIdentity, lease.Namespace, name, namespace)
		}
	}
	return nil
}
