package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// installation returns our scheduler with its configuration.
func installation(t *testing.T) []runtime.Object {
	t.Helper()
	config, err := os.ReadFile("../../config/scheduler-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-aware-scheduler", UID: "uid",
		Labels: map[string]string{"app.kubernetes.io/name": "spot-aware-scheduler", "app.kubernetes.io/component": "scheduler"}}
	spec := v1.PodSpec{
		Containers: []v1.Container{{Name: "scheduler", Image: "registry.bank.example/spot-aware-scheduler:v1.2.3", Args: []string{"--config=/etc/config/scheduler-config.yaml"},
			Ports:        []v1.ContainerPort{{Name: "https-metrics", ContainerPort: 10259}},
			VolumeMounts: []v1.VolumeMount{{Name: "config", MountPath: "/etc/config"}}}},
		Volumes: []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "spot-config"}}}}},
	}
	pod := &v1.Pod{ObjectMeta: meta, Spec: spec}
	pod.Name, pod.Spec.NodeName = "spot-aware-scheduler-x7", "n"
	return []runtime.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: v1.PodTemplateSpec{Spec: spec}}}, pod,
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-config"}, Data: map[string]string{"scheduler-config.yaml": string(config) + "# Ask jane@bank.example.\n"}},
	}
}

// event returns an event about a pod of namespace shop.
func event(name, pod, message string) *v1.Event {
	return &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: pod},
		Reason: "FailedScheduling", Message: message, Type: "Warning", Source: v1.EventSource{Component: "kubelet"}}
}

// archive runs bug-report and returns the contents of the files of its archive.
func archive(t *testing.T, wantStatus int, args ...string) (files map[string]string, errOut string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	out, errOut, status := execute(t, append([]string{"bug-report", "--file", file}, args...)...)
	if status != wantStatus || out != "Wrote "+file+". Read it before you publish it.\n" {
		t.Fatalf("exit status %d, want %d: %q\n%s", status, wantStatus, out, errOut)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, errOut
		}
		text, readErr := io.ReadAll(archive)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "spot-bug-report/")] = string(text)
	}
}

// contents are the files of an archive, sorted.
var contents = []string{"README.txt", "configuration/spot-config/scheduler-config.yaml", "events.json", "explain.txt",
	"logs/spot-aware-scheduler-x7.txt", "metrics/spot-aware-scheduler-x7.txt", "nodes.json", "pods.json", "status.json", "versions.txt"}

func TestBugReport(t *testing.T) {
	waiting := clustertest.NewPod("waits")
	objects := append(installation(t), waiting, event("e1", "waits", "0/1 nodes are available: 1 spot budget used up"), event("e2", "p", "unrelated"))
	kubeconfig := cluster(t, "", objects...)
	files, errOut := archive(t, 0, "--kubeconfig="+kubeconfig)
	if diff := cmp.Diff(contents, slices.Sorted(maps.Keys(files))); diff != "" || errOut != "" {
		t.Errorf("files (-want +got):\n%s\n%s", diff, errOut)
	}
	for file, parts := range map[string][]string{
		"versions.txt": {"v1.99.0-test", "kubectl spot: v", "registry.bank.example/spot-aware-scheduler:v1.2.3"},
		"configuration/spot-config/scheduler-config.yaml": {"kind: KubeSchedulerConfiguration", "minOnDemand: 1"},
		"status.json": {`"name": "waits"`, `"state": "BelowFloor"`},
		"explain.txt": {"pod/waits in namespace shop", "minOnDemand"},
		"events.json": {"0/1 nodes are available"},
		"nodes.json":  {`"name": "n"`, `"node.kubernetes.io/instance-type": "m5.xlarge"`, `"allocatable"`},
		"pods.json":   {`"name": "waits"`, `"nodeName": "n"`, `"cpu": "1"`},
		"README.txt":  {"Not read:\n"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[file], part) {
				t.Errorf("%s has no %q:\n%s", file, part, files[file])
			}
		}
	}
	if strings.Contains(files["events.json"], "unrelated") || strings.Contains(files["pods.json"], "spot-aware-scheduler-x7") {
		t.Errorf("want only events of our programs and of waiting pods, and pods that opt in:\n%s\n%s", files["events.json"], files["pods.json"])
	}
}

// fill sets all strings of a value to texts that mark returns.
func fill(value reflect.Value, mark func() string) {
	switch value.Kind() {
	case reflect.String:
		value.SetString(mark())
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), mark)
	case reflect.Slice:
		if value.Type().Elem().Kind() != reflect.Uint8 {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			fill(value.Index(0), mark)
		}
	case reflect.Map:
		key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fill(key, mark)
		fill(element, mark)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, element)
	case reflect.Struct:
		for i := range value.NumField() {
			if field := value.Type().Field(i); field.IsExported() && field.Type != reflect.TypeFor[metav1.Time]() {
				fill(value.Field(i), mark)
			}
		}
	}
}

// marked returns a StatefulSet, its pod and an event, with a marker in every string that a tenant
// can write. node is the node of the pod.
func marked(mark func() string, node string) []runtime.Object {
	set := clustertest.NewStatefulSet(mark(), 2)
	set.Namespace = mark()
	set.Annotations = map[string]string{spot.MinOnDemandAnnotation: mark(), spot.Domain + mark(): mark(), v1.LastAppliedConfigAnnotation: mark()}
	kept := clustertest.NewPod(set.Name+"-0", clustertest.OwnedBy("StatefulSet", set.Name))
	pod := kept.DeepCopy()
	fill(reflect.ValueOf(&pod.ObjectMeta).Elem(), mark)
	fill(reflect.ValueOf(&pod.Spec).Elem(), mark)
	fill(reflect.ValueOf(&pod.Status).Elem(), mark)
	pod.Namespace, pod.Name, pod.OwnerReferences, pod.DeletionTimestamp = set.Namespace, kept.Name, kept.OwnerReferences, nil
	pod.Spec.SchedulerName, pod.Spec.NodeName, pod.Status.Phase = kept.Spec.SchedulerName, node, v1.PodPending
	for _, key := range []string{"app.kubernetes.io/instance", "pod-template-hash", spot.Domain + mark(), v1.LabelTopologyZone, mark()} {
		pod.Labels[key] = mark()
	}
	for _, key := range []string{spot.MinOnDemandAnnotation, spot.Domain + mark(), v1.LastAppliedConfigAnnotation, "karpenter.sh/do-not-disrupt"} {
		pod.Annotations[key] = mark() + "\n" + mark()
	}
	e := event(mark(), pod.Name, "")
	fill(reflect.ValueOf(e).Elem(), mark)
	e.Namespace, e.InvolvedObject.Namespace, e.InvolvedObject.Name = pod.Namespace, pod.Namespace, pod.Name
	e.Message = "the words of " + mark() + " and User \"jane\" at https://" + mark() + "/x?" + mark() + "=[2001:db8::7] or 10.1.2.3"
	return []runtime.Object{set, pod, e}
}

// With --anonymize, the archive has no word of a tenant, whatever it looks like and wherever it is,
// and no host, address, registry or user.
func TestAnonymizedBugReport(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)marker|äöü|5555|jane|2001|10\.1\.2\.3|bank|shop`)
	letters := func(n int) string {
		return string([]rune{'m', 'a', 'r', 'k', 'e', 'r', rune('a' + n/26%26), rune('a' + n%26)})
	}
	for name, marker := range map[string]func(int) string{
		"letters":          letters,
		"digits":           func(n int) string { return fmt.Sprintf("555500000%03d", n) },
		"compounds":        func(n int) string { return fmt.Sprintf("marker%d-team.example", n) },
		"another alphabet": func(n int) string { return fmt.Sprintf("äöü%d", n) },
	} {
		for _, bound := range []string{"", "marker-node-1.example"} {
			t.Run(fmt.Sprintf("%s on node %q", name, bound), func(t *testing.T) {
				n := 0
				node := clustertest.NewNode("marker-node-1.example", "spot", "m5.xlarge/a")
				node.Labels[v1.LabelHostname], node.Labels["marker.example/team"] = node.Name, "marker"
				objects := append(marked(func() string { n++; return marker(n) }, bound), node)
				files, _ := archive(t, 0, "--anonymize", "--kubeconfig="+cluster(t, "", append(objects, installation(t)...)...))
				for _, file := range slices.Sorted(maps.Keys(files)) {
					if found := forbidden.FindAllString(file+"\n"+files[file], 3); found != nil {
						t.Errorf("%s has %q:\n%s", file, found, files[file])
					}
				}
				if n < 300 || len(files) != len(contents) || !strings.Contains(files["pods.json"], "matchExpressions") ||
					bound == "" && !strings.Contains(files["events.json"], "the words of name-") {
					t.Errorf("%d markers, files %v: the archive has too little to prove anything", n, slices.Sorted(maps.Keys(files)))
				}
			})
		}
	}
}

// With -n, the archive has the workloads of one namespace. Its size is limited.
func TestBugReportIsBounded(t *testing.T) {
	objects := installation(t)
	for i := range 25 {
		objects = append(objects, clustertest.NewPod(fmt.Sprintf("waits-%d", i)))
	}
	for i := range maxEvents + 10 {
		e := event(fmt.Sprintf("e%d", i), "waits-1", fmt.Sprintf("message %d.", i))
		e.LastTimestamp = metav1.NewTime(clustertest.Now.Add(-time.Duration(i) * time.Second))
		objects = append(objects, e)
	}
	other := clustertest.NewPod("other")
	other.Namespace = "bank"
	kubeconfig := "--kubeconfig=" + cluster(t, "", append(objects, other)...)
	files, _ := archive(t, 0, "-n", "shop", kubeconfig)
	if n := strings.Count(files["explain.txt"], "The policy for"); n != maxExplained {
		t.Errorf("%d explanations", n)
	}
	if n := strings.Count(files["events.json"], `"message"`); n != maxEvents || strings.Contains(files["events.json"], "message 505.") {
		t.Errorf("%d events, want the %d newest", n, maxEvents)
	}
	for _, file := range []string{"pods.json", "status.json"} {
		if strings.Contains(files[file], "bank") {
			t.Errorf("%s has another namespace:\n%s", file, files[file])
		}
	}
	if files, _ = archive(t, 0, "-A", kubeconfig); !strings.Contains(files["pods.json"], "bank") || !strings.Contains(files["status.json"], "bank") {
		t.Errorf("with -A, want all namespaces:\n%s", files["status.json"])
	}
}

// Names that are words of the documentation are replaced too.
func TestAnonymizedBugReportWithPublicNames(t *testing.T) {
	set, other := clustertest.NewStatefulSet("kafka", 2), clustertest.NewPod("redis", clustertest.OwnedBy("CloneSet", "storefront"))
	set.Spec.Template.Spec.SchedulerName = clustertest.Profile // without pods
	other.Namespace, other.Spec.SchedulerName = "payments", v1.DefaultSchedulerName
	e := event("e", "waits", "Preempted by payments/redis of storefront on ledger, not by kafka")
	files, _ := archive(t, 0, "--anonymize", "--kubeconfig="+cluster(t, "", append(installation(t), set, other, e, clustertest.NewPod("waits"),
		clustertest.NewNode("ledger", "on-demand", "m5.xlarge/a"))...))
	for file, text := range files {
		if found := regexp.MustCompile("kafka|redis|storefront|payments|ledger|shop").FindString(text); found != "" {
			t.Errorf("%s has %s:\n%s", file, found, text)
		}
	}
	if want := regexp.MustCompile(`Preempted by namespace-\d+/pod-\d+ of workload-\d+ on node-\d+, not by workload-\d+`); !want.MatchString(files["events.json"]) {
		t.Errorf("events:\n%s", files["events.json"])
	}
}

// With --anonymize, what a maintainer needs remains, and a name has one replacement everywhere.
func TestAnonymizedBugReportIsReadable(t *testing.T) {
	waiting := clustertest.NewPod("node") // a word that the texts have too
	files, _ := archive(t, 0, "--anonymize", "--kubeconfig="+cluster(t, "", append(installation(t), waiting,
		clustertest.NewNode("ours", "spot", "z9.mega/moon-1a"), event("e", "node", "0/1 nodes are available: 1 spot budget used up: 0 of at most 0 replicas of shop/node run on spot"))...))
	pod := regexp.MustCompile(`"nodeName": "(\S+)"`).FindStringSubmatch(files["pods.json"])
	name := regexp.MustCompile(`pod/(\S+) in namespace (\S+):`).FindStringSubmatch(files["explain.txt"])
	if pod == nil || name == nil {
		t.Fatalf("%s\n%s", files["pods.json"], files["explain.txt"])
	}
	config, err := os.ReadFile("../../config/scheduler-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var settings []string
	for line := range strings.Lines(string(config)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			settings = append(settings, line)
		}
	}
	only := func(folder string) string { // the only file in a folder, whose name is replaced
		for file, text := range files {
			if strings.HasPrefix(file, folder) {
				return text
			}
		}
		return ""
	}
	for _, setting := range settings {
		if !strings.Contains(only("configuration/"), setting) {
			t.Errorf("the configuration has no %q", setting)
		}
	}
	for file, parts := range map[string][]string{
		"explain.txt":  {"fallbackAfter      5m", "2 pools", name[0]},
		"status.json":  {`"name": "` + name[1] + `"`, `"state": "BelowFloor"`, `"namespace": "` + name[2] + `"`, "0 of the floor of 1 on on-demand"},
		"nodes.json":   {`"name": "` + pod[1] + `"`, `"topology.kubernetes.io/zone": "a"`, `"cpu": "4"`, "z9.mega", "moon-1a"},
		"events.json":  {"0/1 nodes are available: 1 spot budget used up: 0 of at most 0 replicas of " + name[2] + "/" + name[1] + " run on spot"},
		"versions.txt": {"v1.99.0-test", "/spot-aware-scheduler:v1.2.3"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[file], part) {
				t.Errorf("%s has no %q:\n%s", file, part, files[file])
			}
		}
	}
	log := regexp.MustCompile(`^I1127 03:04:42.123456       1 \S+:25] "Evicted pod" pod="` + name[2] + `/workload-\d+" \S+="` + pod[1] + `"`)
	metric := regexp.MustCompile(`(?m)^spot_aware_scheduler_floor_deficit{namespace="` + name[2] + `",workload="workload-\d+"} 1.5e\+06$`)
	if !log.MatchString(only("logs/")) || !metric.MatchString(only("metrics/")) {
		t.Errorf("log:\n%s\nmetrics:\n%s", only("logs/"), only("metrics/"))
	}
}

// Without --anonymize, the archive has nothing of a container except what it occupies, and no label
// or annotation that is neither ours nor well known.
func TestBugReportHasNoSecrets(t *testing.T) {
	pod := clustertest.NewPod("waits")
	mark := func() string { return "hunter2" }
	for _, field := range []any{&pod.Labels, &pod.Annotations, &pod.ManagedFields, &pod.Spec.Containers, &pod.Spec.InitContainers,
		&pod.Spec.EphemeralContainers, &pod.Spec.Volumes, &pod.Spec.ImagePullSecrets, &pod.Spec.SecurityContext, &pod.Spec.HostAliases,
		&pod.Status.ContainerStatuses, &pod.Status.PodIPs} {
		fill(reflect.ValueOf(field).Elem(), mark)
	}
	pod.Annotations[v1.LastAppliedConfigAnnotation], pod.Labels[v1.LabelTopologyZone] = mark(), "zone-of-pod"
	pod.Spec.Containers[0].Resources, pod.Spec.InitContainers[0].Resources = clustertest.NewPod("x").Spec.Containers[0].Resources, v1.ResourceRequirements{}
	pod.Spec.Containers[0].RestartPolicy, pod.Spec.InitContainers[0].RestartPolicy = nil, nil
	pod.Spec.Volumes[0].PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-of-pod"}
	pod.Annotations[spot.MinOnDemandAnnotation] = "7"
	node := clustertest.NewNode("od", "on-demand", "m5.xlarge/a")
	node.Labels["team"], node.Annotations = mark(), map[string]string{"team": mark()}
	node.Status.Addresses, node.Status.Images = []v1.NodeAddress{{Address: mark()}}, []v1.ContainerImage{{Names: []string{mark()}}}
	node.Spec.ProviderID = mark()
	node.Labels["eks.amazonaws.com/capacityType"], node.Labels["autoscaling.cast.ai/draining"] = "ON_DEMAND", "of-signal"
	set, member := clustertest.NewStatefulSet("db", 1), clustertest.NewPod("db-0", clustertest.OwnedBy("StatefulSet", "db"))
	set.Annotations = map[string]string{spot.MinOnDemandAnnotation: "6", v1.LastAppliedConfigAnnotation: mark()}
	e := event("e", "waits", "message")
	fill(reflect.ValueOf(&e.Annotations).Elem(), mark)
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "secret"}, Data: map[string][]byte{"k": []byte(mark())}}
	files, _ := archive(t, 0, "--kubeconfig="+cluster(t, "", append(installation(t), pod, node, set, member, e, secret)...))
	for file, text := range files {
		if strings.Contains(text, mark()) {
			t.Errorf("%s:\n%s", file, text)
		}
	}
	for _, part := range []string{"zone-of-pod", "claim-of-pod", `min-on-demand": "7"`, `min-on-demand": "6"`} {
		if !strings.Contains(files["pods.json"], part) {
			t.Errorf("pods.json has no %q:\n%s", part, files["pods.json"])
		}
	}
	for _, part := range []string{`"eks.amazonaws.com/capacityType": "ON_DEMAND"`, "of-signal"} {
		if !strings.Contains(files["nodes.json"], part) {
			t.Errorf("nodes.json has no %q:\n%s", part, files["nodes.json"])
		}
	}
}

// What cannot be read is named in the archive and on standard error, and the rest is written.
func TestBugReportWithoutRights(t *testing.T) {
	for denied, want := range map[string]struct {
		missing []string // of contents
		gap     string
	}{
		"pods":        {[]string{"explain.txt", contents[4], contents[5], "nodes.json", "pods.json", "status.json"}, `pods is forbidden`},
		"nodes":       {nil, `nodes is forbidden`},
		"events":      {nil, `events: events is forbidden`},
		"leases":      {nil, `leases.coordination.k8s.io is forbidden`},
		"configmaps":  {contents[1:2], `configuration: configmaps is forbidden`},
		"deployments": {contents[1:2], `images and configuration: deployments.apps is forbidden`},
		"log":         {contents[4:5], `log of pod spot-aware-scheduler-x7: `},
		"proxy":       {contents[5:6], `metrics of pod spot-aware-scheduler-x7: `},
	} {
		t.Run(denied, func(t *testing.T) {
			kubeconfig := cluster(t, denied, append(installation(t), clustertest.NewPod("waits"))...)
			files, errOut := archive(t, exitPartial, "--kubeconfig="+kubeconfig)
			if !strings.Contains(files["README.txt"], want.gap) || !strings.Contains(errOut, want.gap) {
				t.Errorf("README.txt: %s\nstandard error: %s", files["README.txt"], errOut)
			}
			rest := slices.DeleteFunc(slices.Clone(contents), func(file string) bool { return slices.Contains(want.missing, file) })
			if diff := cmp.Diff(rest, slices.Sorted(maps.Keys(files))); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
	files, errOut := archive(t, exitPartial, "--anonymize", "--kubeconfig="+cluster(t, "log", installation(t)...))
	if readme := files["README.txt"]; !strings.Contains(errOut, "x7") || !strings.Contains(readme, "log of pod workload-") || strings.Contains(readme, "x7") {
		t.Errorf("with --anonymize, README.txt: %s\nstandard error: %s", readme, errOut)
	}
}

// An invalid configuration is a reason for a bug report.
func TestBugReportWithInvalidConfiguration(t *testing.T) {
	objects := installation(t)
	data := objects[2].(*v1.ConfigMap).Data
	data["scheduler-config.yaml"] = strings.Replace(data["scheduler-config.yaml"], "minOnDemand: 1", "minOnDemand: 130%", 1)
	files, errOut := archive(t, exitPartial, "--kubeconfig="+cluster(t, "", objects...))
	const want = "minOnDemand: Invalid value: \"130%\""
	if !strings.Contains(files["README.txt"], want) || !strings.Contains(errOut, want) || !strings.Contains(files[contents[1]], "minOnDemand: 130%") {
		t.Errorf("%s\n%s\n%s", files["README.txt"], errOut, files[contents[1]])
	}
}

// There is an archive or no file, and no file is replaced.
func TestBugReportFile(t *testing.T) {
	dir := t.TempDir()
	existing := filepath.Join(dir, "existing")
	if err := os.WriteFile(existing, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	var interrupt func() // of the current case
	server := listertest.Start(t, installation(t)...)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // the client is gone
	interrupting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if strings.HasSuffix(request.URL.Path, "/events") {
			interrupt()
		}
		forward.ServeHTTP(w, request)
	}))
	t.Cleanup(interrupting.Close)
	for name, test := range map[string]struct{ file, server, want string }{
		"file exists":         {existing, server.URL, "--file must be a new file in a directory that can be written"},
		"no directory":        {filepath.Join(dir, "none", "r"), server.URL, "--file must be a new file in a directory that can be written"},
		"no directory either": {filepath.Join(existing, "r"), server.URL, "--file must be a new file in a directory that can be written"},
		"no cluster":          {filepath.Join(dir, "r"), "http://127.0.0.1:1", "does not answer"},
		"interrupted":         {filepath.Join(dir, "r"), interrupting.URL, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			interrupt = cancel
			var out, errOut bytes.Buffer
			status := run(ctx, []string{"bug-report", "--file", test.file, "--server", test.server},
				genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
			if status != exitFailed || out.Len() > 0 || !strings.Contains(errOut.String(), test.want) {
				t.Errorf("exit status %d: %s%s", status, out.String(), errOut.String())
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}
			if text, err := os.ReadFile(existing); err != nil || string(text) != "precious" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}
