package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestKustomizationInAnotherNamespace installs by kubectl into a namespace other than kube-system.
// The programs run with the ServiceAccounts and the namespace of that installation, place pods and
// drain a reclaimed node. A second installation has no effect on them.
func TestKustomizationInAnotherNamespace(t *testing.T) {
	c := startCluster(t)
	c.kubectl("create", "namespace", elsewhere)
	c.kubectl("create", "namespace", "second")
	manifests := filepath.Join(t.TempDir(), "all.yaml")
	live.Must(t, os.WriteFile(manifests, []byte(kustomize(t, []string{"base", "overlays/monitoring", "overlays/viewer"}, nil, "", nil)), 0o600))
	for range 2 {
		c.kubectl("apply", "--filename="+manifests)
	}
	t.Setenv("POD_NAMESPACE", elsewhere)
	_, err := c.StartScheduler(t.Context(), lab.SchedulerOptions{
		Kubeconfig: c.kubeconfig(elsewhere, "spot-aware-scheduler"), Flags: []string{"--leader-elect-resource-namespace=" + elsewhere},
	})
	live.Must(t, err)
	controller, err := c.StartController(t.Context(), lab.ControllerOptions{Kubeconfig: c.kubeconfig(elsewhere, "spot-controller")})
	live.Must(t, err)

	t.Run("the policies compile", func(t *testing.T) {
		live.Must(t, live.Until(t.Context(), live.Soon, func() error {
			policies, err := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: ofProduct})
			if err != nil || len(policies.Items) < 5 {
				return fmt.Errorf("%d policies, want 5: %w", len(policies.Items), err)
			}
			for i := range policies.Items {
				policy := &policies.Items[i]
				if checked := policy.Status.TypeChecking; checked == nil || len(checked.ExpressionWarnings) > 0 {
					return fmt.Errorf("policy %s: %v", policy.Name, checked)
				}
			}
			return nil
		}))
	})
	t.Run("places pods and drains a reclaimed node", func(t *testing.T) { c.requirePlacementAndDrain(t) })
	t.Run("the API server limits the controller", func(t *testing.T) {
		_, err := command(t, c.Kubeconfig, "kubectl", "label", "pods", "--namespace=shop", "--all", "pod-template-hash=released", "--overwrite")
		if err == nil || !strings.Contains(err.Error(), "only spot-controller may set the label pod-template-hash") {
			t.Errorf("%v, want a refusal", err)
		}
		_, err = command(t, c.kubeconfig(elsewhere, "spot-controller"), "kubectl", "patch", "pods", "--namespace=shop", c.anyPod(t),
			`--patch={"spec":{"containers":[{"name":"c","image":"other"}]}}`)
		if err == nil || !strings.Contains(err.Error(), "spot-controller may not change what a pod runs") {
			t.Errorf("%v, want a refusal", err)
		}
	})
	t.Run("kubectl spot finds the installation", func(t *testing.T) {
		out, err := command(t, c.Kubeconfig, filepath.Join("..", "..", "bin", "kubectl-spot"), "status", "--namespace=shop", "--output=json")
		if err != nil || !strings.Contains(out, elsewhere+"/spot-aware-scheduler-config-") {
			t.Errorf("%v, want the policy of the ConfigMap in namespace %s:\n%s", err, elsewhere, out)
		}
	})
	t.Run("a second installation", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "second.yaml")
		text := strings.ReplaceAll(kustomize(t, []string{"base"}, nil, "", nil), "namespace: "+elsewhere, "namespace: second")
		live.Must(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := command(t, c.Kubeconfig, "kubectl", "apply", "--filename="+file)
		if want := "is installed in namespace " + elsewhere; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl apply: %v, want an error with %q", err, want)
		}
		t.Setenv("POD_NAMESPACE", "second")
		second, err := c.StartController(t.Context(), lab.ControllerOptions{Kubeconfig: c.kubeconfig("second", "spot-controller")})
		if err == nil {
			_ = second.Stop()
		}
		if want := "kubectl get clusterrolebinding spot-controller"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the second controller: %v, want an error with %q", err, want)
		}
		_, err = c.client.CoordinationV1().Leases("second").Get(t.Context(), "spot-controller", metav1.GetOptions{})
		if err == nil {
			t.Error("the second controller acquired a Lease")
		}
		select {
		case <-controller.Done():
			t.Error("the first controller has ended")
		default:
		}
	})
	live.Must(t, live.Denied(controller))
}

// kubeconfig returns a file with the credential of a ServiceAccount.
func (c *cluster) kubeconfig(namespace, account string) string {
	c.Helper()
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(c.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	live.Must(c.T, err)
	config, file := clientcmdapi.NewConfig(), filepath.Join(c.TempDir(), "kubeconfig")
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: c.Config().Host, CertificateAuthorityData: c.Config().CAData}
	config.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "account"}
	config.CurrentContext = "lab"
	live.Must(c.T, clientcmd.WriteToFile(*config, file))
	return file
}

// anyPod returns the name of a pod in the namespace shop.
func (c *cluster) anyPod(t *testing.T) string {
	t.Helper()
	pods, err := live.Pods(t.Context(), c.client, "shop", metav1.ListOptions{})
	live.Must(t, err)
	return pods[0].Name
}

// requirePlacementAndDrain fails unless the pods of a Deployment run on both capacity types, and
// leave a reclaimed spot node.
func (c *cluster) requirePlacementAndDrain(t *testing.T) {
	t.Helper()
	live.Must(t, c.CreateNodes(t.Context(), live.Spot(2, 8)...))
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	live.Must(t, err)
	template, replicas := live.PodTemplate("web"), int32(4)
	_, err = c.client.AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Template: template, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}},
	}, metav1.CreateOptions{})
	live.Must(t, err)
	onNodes := func(want func(onSpot map[string]int) bool) func() error {
		return func() error {
			pods, err := live.Pods(t.Context(), c.client, "shop", metav1.ListOptions{})
			if err != nil {
				return err
			}
			on, ready := map[string]int{}, 0
			for i := range pods {
				on[pods[i].Spec.NodeName]++
				if live.IsReady(&pods[i]) {
					ready++
				}
			}
			if len(pods) != int(replicas) || ready != int(replicas) || !want(on) {
				return fmt.Errorf("%d ready pods on nodes %v", ready, on)
			}
			return nil
		}
	}
	reclaimed := ""
	live.Must(t, live.Until(t.Context(), time.Minute, onNodes(func(on map[string]int) bool {
		for node := range on {
			if strings.HasPrefix(node, "spot") {
				reclaimed = node
			}
		}
		return reclaimed != "" && on[""] == 0
	})))
	live.Must(t, live.EditNode(t.Context(), c.client, live.Soon, reclaimed, func(node *v1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: "aws-node-termination-handler/spot-itn", Effect: v1.TaintEffectNoSchedule})
	}))
	live.Must(t, live.Until(t.Context(), 2*time.Minute, onNodes(func(on map[string]int) bool { return on[reclaimed] == 0 && on[""] == 0 })))
}
