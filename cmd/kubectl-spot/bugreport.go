package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/version"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/docs"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// The limits of an archive: explanations, events, and lines and bytes of a log.
const maxExplained, maxEvents, maxLogLines, maxLogBytes = 20, 500, 1000, 1 << 20

// programs are the names of our programs, in their labels and in events.
var programs = []string{"spot-aware-scheduler", "spot-extender", "spot-controller", "spot-failsafe"}

// allowedFields matches the paths of the values that a JSON file may have. %s are keys of labels
// and annotations that decisions read. Other annotations can have anything, even the whole object.
const allowedFields = `^((status|` +
	`events\.(involvedObject|reason|message|source|firstTimestamp|lastTimestamp|eventTime|series|count|type|reportingComponent)|` +
	`(nodes|pods\.pod)\.metadata\.(namespace|name|uid|creationTimestamp|deletionTimestamp|ownerReferences)|` +
	`nodes\.(spec\.(unschedulable|taints)|status\.(allocatable|conditions|nodeInfo\.kubeletVersion))|` +
	`pods\.pod\.spec\.(nodeName|schedulerName|nodeSelector|affinity|tolerations|topologySpreadConstraints|priority|priorityClassName|` +
	`preemptionPolicy|schedulingGates|overhead|resources|terminationGracePeriodSeconds|volumes\.persistentVolumeClaim|` +
	`(initContainers|containers)\.(resources|restartPolicy|ports\.hostPort))|` +
	`pods\.pod\.status\.(phase|qosClass|nominatedNodeName|conditions))(\.|$)|` +
	`(nodes\.metadata|pods\.pod\.metadata|pods)\.((labels|annotations)\.(spot-aware-scheduler\.io/.*|karpenter\.sh/do-not-disrupt|` +
	`cluster-autoscaler\.kubernetes\.io/safe-to-evict|controller\.kubernetes\.io/pod-deletion-cost|%s)|` +
	`labels\.(([^/]+\.)?(kubernetes\.io|k8s\.io|karpenter\.sh)/.*|pod-template-hash|controller-revision-hash))$)`

// freeKeys matches the paths of maps whose keys users choose.
var freeKeys = regexp.MustCompile(`\.(labels|annotations|nodeSelector|matchLabels|allocatable|requests|limits|overhead)$`)

type bugReport struct {
	*options
	names   *anonymizer    // nil without --anonymize
	view    *report.View   // nil if pods cannot be read
	allowed *regexp.Regexp // allowedFields
	// waiting are the pods without a node, and ours the pods of our programs.
	waiting, ours []v1.Pod
	archive       *tar.Writer
}

func (o *options) bugReportCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "bug-report",
		Short: "Write an archive for a bug report",
		Long: `Writes an archive with versions, the configuration, status, explain of pods that wait, events,
metrics and logs of the programs, and the fields of nodes and pods that placement reads. With
-n, the pods are of one namespace. It reads no Secrets. If something cannot be read, standard
error and README.txt in the archive name it, and the exit status is 3. With exit status 1,
there is no archive. Read the archive before you publish it.`,
		Example: "  kubectl spot bug-report --anonymize --file report.tar.gz",
		Args:    cobra.NoArgs,
	}
	o.addAllNamespaces(command)
	file := command.Flags().String("file", "spot-bug-report.tar.gz", "Path of the archive, which must not exist.")
	anonymize := command.Flags().Bool("anonymize", false,
		"Replace the names of objects, and all words that are not in the documentation of this project, by stable names.")
	command.RunE = func(command *cobra.Command, _ []string) error {
		r := &bugReport{options: o, allowed: regexp.MustCompile(fmt.Sprintf(allowedFields, spot.CapacityLabel))}
		if *anonymize {
			r.names = newAnonymizer()
		}
		return r.create(command.Context(), *file)
	}
	return command
}

// create creates the archive. It leaves no file behind if it returns an error.
func (r *bugReport) create(ctx context.Context, file string) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--file must be a new file in a directory that can be written: %w", err)
	}
	compressed := gzip.NewWriter(out)
	r.archive = tar.NewWriter(compressed)
	err = cmp.Or(r.collect(ctx), ctx.Err(), r.archive.Close(), compressed.Close(), out.Close())
	if err != nil {
		return errors.Join(err, os.Remove(file))
	}
	fmt.Fprintf(r.Out, "Wrote %s. Read it before you publish it.\n", file)
	return nil
}

// add adds a file. An error remains until the archive is closed.
func (r *bugReport) add(file, text string) {
	_ = r.archive.WriteHeader(&tar.Header{Name: "spot-bug-report/" + file, Mode: 0o644, Size: int64(len(text)), ModTime: time.Now()})
	_, _ = r.archive.Write([]byte(text))
}

// failed reports whether there is an error, and records that the part could not be read.
func (r *bugReport) failed(part string, err error) bool {
	if err != nil && !errors.Is(err, context.Canceled) {
		r.lacks(comment(part + ": " + strings.ReplaceAll(err.Error(), "\n", ". ")))
	}
	return err != nil
}

// addJSON adds the file NAME.json with the allowed fields of values, one after the other: many pods
// as one value would need much memory. Names are replaced in decoded strings, because an escape
// sequence would look like a part of a word.
func (r *bugReport) addJSON(name string, values ...any) {
	var text bytes.Buffer
	for _, value := range values {
		var decoded any
		data, err := json.Marshal(value)
		r.failed(name, cmp.Or(err, json.Unmarshal(data, &decoded)))
		data, _ = json.MarshalIndent(r.clean(name, decoded), "", " ") // what was decoded can be encoded
		fmt.Fprintf(&text, "%s\n", data)
	}
	r.add(name+".json", text.String())
}

// clean returns the allowed fields of a JSON value, with names replaced; nil if there are none.
func (r *bugReport) clean(path string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		cleaned, free := map[string]any{}, freeKeys.MatchString(path)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if child := r.clean(path+"."+key, v[key]); child != nil && free {
				cleaned[r.names.text(key)] = child
			} else if child != nil {
				cleaned[key] = child
			}
		}
		if len(cleaned) > 0 {
			return cleaned
		}
	case []any:
		for i := range v {
			v[i] = r.clean(path, v[i])
		}
		if v = slices.DeleteFunc(v, func(child any) bool { return child == nil }); len(v) > 0 {
			return v
		}
	default:
		text, isText := v.(string)
		if r.allowed.MatchString(path) && isText {
			return r.names.text(text)
		} else if r.allowed.MatchString(path) {
			return v
		}
	}
	return nil
}

// collect reads all parts. It returns an error if the API server does not answer.
func (r *bugReport) collect(ctx context.Context) (err error) {
	if err := r.connect(); err != nil {
		return err
	}
	server, err := r.client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil { // every user may read it
		return r.withHint(err, "")
	}
	r.view, _, err = r.readWideView(ctx, lister.Scope{Namespace: r.givenNamespace(), AllPods: true, Volumes: true, DisruptionBudgets: true})
	if !r.failed("objects", err) {
		r.failed("state of the controller", r.readController(ctx, r.view))
		statuses, others := r.view.Statuses()
		if r.names != nil {
			r.names.addNames(r.view, statuses)
		}
		r.addObjects()
		r.addAnswers(statuses, others)
	}
	r.addPrograms(ctx, server)
	r.addEvents(ctx)
	for i := range r.ours {
		r.addLogAndMetrics(ctx, &r.ours[i])
	}
	r.add("README.txt", r.names.text("Not read:\n"+strings.Join(append(r.source.ReadErrors, r.source.Policy.AssumedReason), "\n")))
	return nil
}

// addObjects adds the nodes, and the pods of the profile with the annotations of their workloads.
func (r *bugReport) addObjects() {
	nodes, pods, read := []any{}, []any{}, slices.Clone(providers.RoleLabels)
	for _, label := range r.view.Policy.CapacityLabels {
		read = append(read, label.Key)
	}
	for i := range r.view.Signals {
		read = append(read, r.view.Signals[i].Key)
	}
	r.allowed = regexp.MustCompile(fmt.Sprintf(allowedFields, strings.ReplaceAll(regexp.QuoteMeta(strings.Join(read, "\n")), "\n", "|")))
	for _, n := range r.view.Snapshot.Nodes {
		nodes = append(nodes, n.Node)
	}
	for _, p := range r.view.Snapshot.Pods {
		if p.Subject != nil && p.Workload.InScope && r.view.Includes(p.Namespace) {
			pods = append(pods, map[string]any{"pod": p.Pod, "annotations": p.Subject.Pod.Workload.Annotations})
			if p.Spec.NodeName == "" {
				r.waiting = append(r.waiting, *p.Pod)
			}
		}
	}
	r.addJSON("nodes", nodes...)
	r.addJSON("pods", pods...)
}

// addAnswers adds the answers of status, and of explain for pods that wait.
func (r *bugReport) addAnswers(all []report.Status, others int) {
	all = slices.DeleteFunc(all, func(s report.Status) bool { return !r.view.Includes(s.Namespace) })
	r.addJSON("status", map[string]any{"items": all, "otherWorkloads": others, "policySource": r.source.Policy})
	p := newPrinting(&cobra.Command{})
	*p.flags.OutputFormat = "wide"
	var text bytes.Buffer
	for _, pod := range r.waiting[:min(len(r.waiting), maxExplained)] {
		e, err := r.view.Explain("Pod", pod.Namespace, pod.Name)
		if !r.failed("explain", err) {
			r.failed("explain", p.explanation(&text, e))
			fmt.Fprintln(&text)
		}
	}
	r.add("explain.txt", r.names.text(text.String()))
}

// addPrograms adds the versions and the configuration, and finds the pods of our programs.
func (r *bugReport) addPrograms(ctx context.Context, server []byte) {
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (" + strings.Join(programs, ",") + ")"}
	versions, configMaps := fmt.Sprintf("kubectl spot: %s\nAPI server: %s\n", version.Get().GitVersion, server), map[string]bool{}
	namespace, err := lister.FindNamespace(ctx, r.client)
	if r.failed("the namespace of the installation", err) {
		namespace = metav1.NamespaceSystem
	}
	deployments, err := r.client.AppsV1().Deployments(namespace).List(ctx, ours)
	r.failed("images and configuration", err)
	for i := range deployments.Items { // none if there is an error
		pod := &deployments.Items[i].Spec.Template.Spec
		for j := range pod.Containers {
			versions += r.names.text("image of "+deployments.Items[i].Name+": "+pod.Containers[j].Image) + "\n"
		}
		for j := range pod.Volumes {
			if source := pod.Volumes[j].ConfigMap; source != nil {
				configMaps[source.Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configMaps)) {
		configMap, err := r.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		r.failed("configuration", err)
		for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
			r.add("configuration/"+r.names.text(name)+"/"+r.names.text(key), r.names.text(configMap.Data[key]))
		}
	}
	r.add("versions.txt", versions)
	pods, err := r.client.CoreV1().Pods(namespace).List(ctx, ours)
	r.failed("pods of the programs", err)
	r.ours = pods.Items
}

// addEvents adds the newest events of our programs, and about their pods and the pods that wait.
func (r *bugReport) addEvents(ctx context.Context) {
	about := map[string]bool{}
	for _, pod := range slices.Concat(r.waiting, r.ours) {
		about[pod.Namespace+"/"+pod.Name] = true
	}
	events, err := r.client.CoreV1().Events(r.givenNamespace()).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	r.failed("events", err)
	kept := slices.DeleteFunc(events.Items, func(e v1.Event) bool {
		return !about[e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name] &&
			!slices.Contains(programs, cmp.Or(e.ReportingController, e.Source.Component))
	})
	slices.SortStableFunc(kept, func(a, b v1.Event) int {
		return cmp.Or(a.LastTimestamp.Time, a.EventTime.Time).Compare(cmp.Or(b.LastTimestamp.Time, b.EventTime.Time))
	})
	r.addJSON("events", kept[max(0, len(kept)-maxEvents):])
}

var labelValue = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)

// addLogAndMetrics adds the end of the log and the metrics of one of our pods. The API server does
// not pass the user's identity on to the program, which may therefore refuse to show its metrics.
func (r *bugReport) addLogAndMetrics(ctx context.Context, pod *v1.Pod) {
	pods, file, c := r.client.CoreV1().Pods(pod.Namespace), r.names.text(pod.Name)+".txt", &pod.Spec.Containers[0]
	last := &v1.PodLogOptions{Container: c.Name, TailLines: new(int64(maxLogLines)), LimitBytes: new(int64(maxLogBytes))}
	log, err := pods.GetLogs(pod.Name, last).DoRaw(ctx)
	if !r.failed("log of pod "+pod.Name, err) {
		r.add("logs/"+file, r.names.text(string(log)))
	}
	for _, port := range c.Ports {
		if port.Name == "https-metrics" {
			metrics, err := pods.ProxyGet("https", pod.Name, fmt.Sprint(port.ContainerPort), "metrics", nil).DoRaw(ctx)
			if !r.failed("metrics of pod "+pod.Name, err) {
				r.add("metrics/"+file, labelValue.ReplaceAllStringFunc(string(metrics), r.names.text))
			}
		}
	}
}

// anonymizer replaces the words of a text, except numbers and public words that name no object. So
// it also replaces what a tenant wrote, wherever it appears. The text of a nil anonymizer remains.
type anonymizer struct {
	// replacements has the words that were replaced, and the names that are never replaced.
	replacements map[string]string
	// public has the public words in lower case: the words of the documentation.
	public map[string]bool
}

var (
	// word matches a word: the name of an object, a host, an address of an e-mail, IPv4 or IPv6 is
	// one word, and a URL or an image has several. User "NAME" in an error of the API server is one
	// word too, also if a log quotes it.
	word = regexp.MustCompile(`(?i:user) \\?"[^"]*"|(?:[[:xdigit:]]{0,4}:){3,}[[:xdigit:].]*|` +
		`[A-Za-z0-9\x{80}-\x{10FFFF}](?:[-_.@A-Za-z0-9\x{80}-\x{10FFFF}]*[A-Za-z0-9\x{80}-\x{10FFFF}])?`)
	// numeric matches numbers, quantities, durations, versions, the parts of a time and the start
	// of a line of a log, but no IPv4 address, and not the 12 digits of an AWS account.
	numeric = regexp.MustCompile(`^(v?\d{1,11}(\.\d{1,9}){0,2}|\d{4}-\d\d-\d\d(T\d\d)?|[IWEF]\d{4}|` +
		`(\d{1,11}(\.\d{1,9})?([numkKMGTPE]i?|[mnu]?s|h|d|y|Z))+)$`)
)

// kubernetesWords are public words that the documentation of this project lacks.
const kubernetesWords = `PodScheduled Initialized ContainersReady PodReadyToStartContainers MemoryPressure DiskPressure PIDPressure
	NetworkUnavailable KubeletReady KubeletNotReady NoSchedule PreferNoSchedule NoExecute NotIn DoesNotExist Equal Exists Guaranteed
	Burstable BestEffort ephemeral-storage amd64 arm64 linux hostname FailedScheduling SuccessfulCreate FailedCreate Preempted Pulling
	Pulled Killing Unhealthy BackOff untolerated incoming didn unreachable not-ready memory-pressure disk-pressure
	PreemptLowerPriority Never leaderElect resourceName resourceNamespace qps enableContentionProfiling multiPoint
	PodTopologySpread defaultingType defaultConstraints get list watch`

func newAnonymizer() *anonymizer {
	a := &anonymizer{public: map[string]bool{}, replacements: map[string]string{}}
	for _, name := range append(strings.Fields("default kube-system kube-public kube-node-lease"), programs...) {
		a.replacements[name] = name
	}
	a.publish(kubernetesWords + " " + docsURL)
	utilruntime.Must(fs.WalkDir(docs.Pages, ".", func(name string, _ fs.DirEntry, err error) error {
		page, _ := docs.Pages.ReadFile(name) // empty for a directory
		a.publish(string(page))
		return err // of an embedded page: there is none
	}))
	return a
}

func (a *anonymizer) publish(text string) {
	for _, w := range word.FindAllString(strings.ToLower(text), -1) {
		a.public[w] = true
	}
}

// add replaces the words of a name from now on, even if they are public.
func (a *anonymizer) add(kind, name string) {
	for _, w := range word.FindAllString(name, -1) {
		if a.replacements[w] == "" {
			a.replacements[w] = fmt.Sprintf("%s-%d", kind, len(a.replacements))
		}
	}
}

// addNames adds the names of objects. statuses also has the workloads without pods. The zones and
// instance types of nodes are public.
func (a *anonymizer) addNames(view *report.View, statuses []report.Status) {
	for _, n := range view.Snapshot.Nodes {
		a.add("node", n.Name)
		a.publish(n.Labels[v1.LabelTopologyZone] + " " + n.Labels[v1.LabelTopologyRegion] + " " + n.Labels[v1.LabelInstanceTypeStable])
	}
	for _, w := range view.Snapshot.Workloads {
		a.add("workload", w.Name)
	}
	for i := range statuses {
		a.add("namespace", statuses[i].Namespace)
		a.add("workload", statuses[i].Name)
	}
	for _, p := range view.Snapshot.Pods {
		a.add("namespace", p.Namespace)
		a.add("pod", p.Name)
	}
}

func (a *anonymizer) text(text string) string {
	if a == nil {
		return text
	}
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if a.replacements[w] == "" && (a.public[strings.ToLower(w)] || numeric.MatchString(w)) {
			return w
		}
		a.add("name", w)
		return a.replacements[w]
	})
}
