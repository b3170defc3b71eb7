package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers, which templates compare
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kubectl/pkg/cmd/get"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// apiVersion is the version of the objects that -o json and similar formats print. Such objects are
// never stored.
const apiVersion = "spot-aware-scheduler.io/v1alpha1"

// tableFormat is the name of the default format, for commands that accept it.
const tableFormat = "table"

// customColumns is the prefix of the output format with the user's own columns, as in kubectl get.
const customColumns = "custom-columns="

type printing struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
	// sortBy is the field to sort by; "" is the order of the answer.
	sortBy string
	// seen has the rows of the last table with -w; nil without it.
	seen map[string]bool
	// others are the formats that only this command has.
	others []string
}

// newPrinting adds the flags -o and --no-headers to a command. others are formats that the command
// prints itself.
func newPrinting(command *cobra.Command, others ...string) *printing {
	p := &printing{flags: genericclioptions.NewPrintFlags(""), others: others}
	p.flags.AddFlags(command)
	formats := slices.Concat(p.flags.AllowedFormats(), []string{"wide", strings.TrimSuffix(customColumns, "=")}, others)
	slices.Sort(formats)
	command.Flag("output").Usage = fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", "))
	command.Flags().BoolVar(&p.noHeaders, "no-headers", false, "Do not print column headers.")
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	utilruntime.Must(command.RegisterFlagCompletionFunc("output", complete)) // the flag exists
	command.PreRunE = func(*cobra.Command, []string) error { return p.check() }
	return p
}

// check rejects an unknown format before anything is read.
func (p *printing) check() error {
	if p.humanReadable() || p.format() == "name" || slices.Contains(p.others, p.format()) {
		return nil
	}
	if _, err := p.printer(); err != nil {
		if len(p.others) > 0 {
			err = fmt.Errorf("%w; also %s", err, strings.Join(p.others, ", "))
		}
		return fmt.Errorf("%w; %w", err, errUsage)
	}
	return nil
}

// printer returns the printer for programs, except for the format name.
func (p *printing) printer() (printers.ResourcePrinter, error) {
	if columns, custom := strings.CutPrefix(p.format(), customColumns); custom {
		return get.NewCustomColumnsPrinterFromSpec(columns, unstructured.UnstructuredJSONScheme, p.noHeaders)
	}
	return p.flags.ToPrinter()
}

func (p *printing) format() string { return *p.flags.OutputFormat }
func (p *printing) wide() bool     { return p.format() == "wide" }

// humanReadable reports whether the output is for a person.
func (p *printing) humanReadable() bool {
	isTable := p.format() == tableFormat && slices.Contains(p.others, tableFormat)
	return (p.format() == "" || p.wide() || isTable) && *p.flags.TemplatePrinterFlags.TemplateArgument == ""
}

// source describes the data behind an answer. It is part of the output for programs, because
// warnings go to standard error.
type source struct {
	Policy policySource `json:"policySource"`
	// ReadErrors lists what could not be read; never nil.
	ReadErrors []string `json:"readErrors"`
	// UnconfirmedNodes counts the nodes whose reclaim signal nothing else confirms, while the
	// breaker is open; 0 if it is closed.
	UnconfirmedNodes int `json:"unconfirmedNodes,omitempty"`
	// Pause and Breaker are the switches of the controller that are in effect, with who set them.
	Pause   *safety.Pause         `json:"pause,omitempty"`
	Breaker *safety.ForcedBreaker `json:"breaker,omitempty"`
	// noOwners reports whether owners are missing.
	noOwners bool
}

type policySource struct {
	Name string `json:"name"`
	// AssumedReason is why the policy had to be assumed; "" if it was read.
	AssumedReason string `json:"assumedReason,omitempty"`
}

// complete returns errPartial if an answer lacks objects, or if its policy may differ from the
// scheduler's.
func (s *source) complete() error {
	if len(s.ReadErrors) > 0 || s.Policy.AssumedReason != "" {
		return errPartial
	}
	return nil
}

// qualified qualifies a sentence that reports the absence of something if unreadable owners may
// hide it.
func (s *source) qualified(sentence string) string {
	if s.noOwners {
		return "Not all owners of pods could be read, so this may be incomplete: " + strings.ToLower(sentence[:1]) + sentence[1:]
	}
	return sentence
}

// refsOf returns the objects that the items of an answer are about.
func refsOf[T any](items []T, ref func(*T) report.Ref) []report.Ref {
	refs := make([]report.Ref, len(items))
	for i := range items {
		refs[i] = ref(&items[i])
	}
	return refs
}

// object prints an answer for programs as an object of the given kind. With -o name it prints a
// line for each object in about.
func (p *printing) object(out io.Writer, kind string, from *source, answer any, about []report.Ref) error {
	if p.format() == "name" {
		printer := &printers.NamePrinter{ShortOutput: true}
		for _, ref := range about {
			object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind}}
			object.Name = ref.Name
			if err := printer.PrintObj(object, out); err != nil {
				return err
			}
		}
		return nil
	}
	fields, err := objectOf(answer, from)
	if err != nil {
		return err
	}
	fields["apiVersion"], fields["kind"] = apiVersion, kind
	printer, err := p.printer()
	if err != nil {
		return err
	}
	if list := cmp.Or(fields["items"], fields["workloads"]); list != nil && strings.HasPrefix(p.format(), customColumns) {
		all, err := (&unstructured.Unstructured{Object: map[string]any{"items": list}}).ToList()
		if err != nil {
			return err
		}
		return printer.PrintObj(all, out) // a row for each item
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: fields}, out)
}

// objectOf returns a JSON object with the fields of all parts.
func objectOf(parts ...any) (object map[string]any, err error) {
	for _, part := range parts {
		data, err := json.Marshal(part)
		if err = cmp.Or(err, json.Unmarshal(data, &object)); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// table is output for a person.
type table struct {
	metav1.Table
	namespaced bool // whether rows of workloads start with the namespace
}

// The priorities of columns. A wide column is shown only with -o wide.
const (
	always = 0
	wide   = 1
)

// newWorkloadTable returns a table of the workloads of one namespace, or of all if it is empty.
func newWorkloadTable(namespace string, columns ...string) *table {
	t := &table{namespaced: namespace == ""}
	if t.namespaced {
		t.columns(always, "namespace")
	}
	t.columns(always, "workload")
	t.columns(always, columns...)
	return t
}

func (t *table) columns(priority int32, names ...string) {
	for _, name := range names {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority})
	}
}

func (t *table) row(cells ...any) {
	t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
}

func (t *table) workload(ref report.Ref, cells ...any) {
	cells = append([]any{ref.String()}, cells...)
	if t.namespaced {
		cells = append([]any{ref.Namespace}, cells...)
	}
	t.row(cells...)
}

// table prints a table. A table without rows prints nothing.
func (p *printing) table(out io.Writer, t *table) error {
	if p.seen != nil {
		p.changed(t)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide(), NoHeaders: p.noHeaders}).PrintObj(&t.Table, out)
}

// cell returns a placeholder for empty text, as kubectl does, so that programs can count columns.
func cell(text string) string { return cmp.Or(text, "<none>") }

func orNone(none bool, value any) any {
	if none {
		return cell("")
	}
	return value
}

func sentence(text string) string {
	return strings.ToUpper(text[:1]) + text[1:]
}

// sorted sorts the items of an answer by the flag --sort-by: by number if all values are numbers.
func sorted[T any](p *printing, items []T) error {
	if p.sortBy == "" || len(items) == 0 {
		return nil
	}
	path, err := get.RelaxedJSONPathExpression(p.sortBy)
	by := jsonpath.New("").AllowMissingKeys(true)
	if err := cmp.Or(err, by.Parse(path)); err != nil {
		return fmt.Errorf("--sort-by: invalid value %q: %w; %w", p.sortBy, err, errUsage)
	}
	type keyed struct {
		item   T
		text   string
		number float64
	}
	all, numbers, found := make([]keyed, len(items)), true, false
	for i := range items {
		object, err := objectOf(&items[i])
		if err != nil {
			return err
		}
		var value strings.Builder
		if err := by.Execute(&value, object); err != nil {
			return fmt.Errorf("--sort-by: invalid value %q: %w; %w", p.sortBy, err, errUsage)
		}
		text := value.String()
		number, notNumber := strconv.ParseFloat(text, 64)
		numbers, found = numbers && (notNumber == nil || text == ""), found || text != ""
		all[i] = keyed{items[i], text, number}
	}
	if !found {
		return fmt.Errorf("--sort-by: invalid value %q: no item has this field; -o json shows the fields; %w", p.sortBy, errUsage)
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if numbers {
			return cmp.Compare(a.number, b.number)
		}
		return strings.Compare(a.text, b.text)
	})
	for i := range all {
		items[i] = all[i].item
	}
	return nil
}

// watchInterval is the time between two readings of the cluster with -w.
const watchInterval = 5 * time.Second

// addWatch adds the flag -w to a command, which repeats it and prints the rows that changed.
func addWatch(command *cobra.Command, p *printing) {
	watch := command.Flags().BoolP("watch", "w", false, "Read the cluster every "+watchInterval.String()+", and print the rows that changed.")
	once := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if !*watch {
			return once(command, args)
		}
		if !p.humanReadable() {
			return fmt.Errorf("--watch prints a table, not the format %q; %w", p.format(), errUsage)
		}
		for p.seen = map[string]bool{}; ; p.noHeaders = true {
			if err := once(command, args); err != nil {
				return err
			}
			select {
			case <-command.Context().Done():
				return nil
			case <-time.After(watchInterval):
			}
		}
	}
}

// changed removes the rows that were printed before. The columns AGE and DEADLINE always change.
func (p *printing) changed(t *table) {
	seen := map[string]bool{}
	var rows []metav1.TableRow
	for i := range t.Rows {
		var key strings.Builder
		for j, column := range t.ColumnDefinitions {
			if column.Name != "age" && column.Name != "deadline" {
				fmt.Fprintf(&key, "%v\x00", t.Rows[i].Cells[j])
			}
		}
		if seen[key.String()] = true; !p.seen[key.String()] {
			rows = append(rows, t.Rows[i])
		}
	}
	p.seen, t.Rows = seen, rows
}
