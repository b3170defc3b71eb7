package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// account is a ServiceAccount in kube-system that the manifests ship.
type account struct {
	name string
	// manifests are the shipped files that define the account and its rights.
	manifests []string
}

var (
	schedulerAccount = account{"spot-aware-scheduler", []string{
		"manifests/components/scheduler/serviceaccount.yaml", "manifests/components/scheduler/rbac.yaml",
		"manifests/components/scheduler/admissionpolicy.yaml", "manifests/components/controller/budgets-admissionpolicy.yaml",
	}}
	controllerAccount = account{"spot-controller", []string{
		"manifests/components/controller/serviceaccount.yaml", "manifests/components/controller/rbac.yaml",
		"manifests/components/controller/admissionpolicies.yaml", "manifests/components/controller/jobs-admissionpolicy.yaml",
	}}
)

// apiServerCert and apiServerKey are the files with the API server's certificate and its key, in
// the lab's directory. The key also signs the tokens of ServiceAccounts.
const apiServerCert, apiServerKey = "apiserver.crt", "apiserver.key"

// identity names the files with the credentials of the API server and of its users.
type identity struct{ certFile, keyFile, tokensFile string }

// makeIdentities makes a serving certificate for the API server at address and port, and the
// tokens and kubeconfigs of the administrator and the stock scheduler.
func (cp *ControlPlane) makeIdentities(address, port string) (identity, error) {
	id := identity{
		certFile: filepath.Join(cp.Dir, apiServerCert), keyFile: filepath.Join(cp.Dir, apiServerKey),
		tokensFile: filepath.Join(cp.Dir, "tokens.csv"),
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, nil)
	if err != nil {
		return id, fmt.Errorf("making the API server's certificate: %w", err)
	}
	admin, stock := rand.Text(), rand.Text()
	tokens := admin + ",admin,1,system:masters\n" + stock + ",system:kube-scheduler,2\n"
	for file, data := range map[string][]byte{id.certFile: cert, id.keyFile: key, id.tokensFile: []byte(tokens)} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return id, fmt.Errorf("writing the API server's identities: %w", err)
		}
	}

	cp.config = &rest.Config{
		Host: "https://" + net.JoinHostPort(address, port), BearerToken: admin, TLSClientConfig: rest.TLSClientConfig{CAData: cert},
		QPS: -1, // no client-side limit: the API server has priority and fairness
	}
	cp.Kubeconfig = filepath.Join(cp.Dir, "admin.kubeconfig")
	if err := cp.writeKubeconfig(cp.Kubeconfig, admin); err != nil {
		return id, err
	}
	cp.StockKubeconfig = filepath.Join(cp.Dir, "kube-scheduler.kubeconfig")
	return id, cp.writeKubeconfig(cp.StockKubeconfig, stock)
}

// grant applies the shipped ServiceAccount, RBAC and admission policies, writes a kubeconfig with
// a token of the account, and returns the file's name. So the tests run with the rights that
// ship.
func (cp *ControlPlane) grant(ctx context.Context, to account) (kubeconfig string, err error) {
	for _, file := range to.manifests {
		if err := cp.Apply(ctx, file); err != nil {
			return "", err
		}
	}
	token, err := cp.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, to.name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("getting a token for %s/%s: %w", metav1.NamespaceSystem, to.name, err)
	}
	kubeconfig = filepath.Join(cp.Dir, to.name+".kubeconfig")
	return kubeconfig, cp.writeKubeconfig(kubeconfig, token.Status.Token)
}

// Apply creates the objects of manifests, in the order of the files. The paths are relative to the
// checkout and contain slashes. An object that exists is an error.
func (cp *ControlPlane) Apply(ctx context.Context, manifests ...string) error {
	c, err := client.New(cp.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, file := range manifests {
		objects, err := readManifest(filepath.Join(cp.Root, filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := c.Create(ctx, object); err != nil {
				return fmt.Errorf("applying %s: %w", file, err)
			}
		}
	}
	return nil
}

// readManifest returns the objects of a YAML file with one or more documents.
func readManifest(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		objects = append(objects, object)
	}
}

// writeKubeconfig writes a file, readable by this user only, for the owner of token.
func (cp *ControlPlane) writeKubeconfig(path, token string) error {
	const name = "spot-lab"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: cp.config.Host, CertificateAuthorityData: cp.config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
