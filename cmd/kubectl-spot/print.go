package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json" // whole numbers stay so, which templates compare
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/report"
)

// apiVersion is that of what -o json and the like print. Nothing of that kind is ever stored.
const apiVersion = "spot-aware-scheduler.io/v1alpha1"

// printing are the flags of how an answer is printed.
type printing struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
}

// newPrinting gives a command the flags -o and --no-headers.
func newPrinting(command *cobra.Command) *printing {
	p := &printing{flags: genericclioptions.NewPrintFlags("")}
	p.flags.AddFlags(command)
	formats := append(p.flags.AllowedFormats(), "wide")
	slices.Sort(formats)
	command.Flag("output").Usage = fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", "))
	command.Flags().BoolVar(&p.noHeaders, "no-headers", false, "Print no headers of columns.")
	if err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is such a flag
	}
	return p
}

// check tells of a format that there is not before anything is read.
func (p *printing) check() error {
	if p.human() || p.format() == "name" {
		return nil
	}
	if _, err := p.flags.ToPrinter(); err != nil {
		return fmt.Errorf("%w; %w", err, errUsage)
	}
	return nil
}

func (p *printing) format() string { return *p.flags.OutputFormat }
func (p *printing) wide() bool     { return p.format() == "wide" }

// human reports whether a person is to read it.
func (p *printing) human() bool {
	return (p.format() == "" || p.wide()) && *p.flags.TemplatePrinterFlags.TemplateArgument == ""
}

// source is what an answer was made from: part of what programs read, because warnings go elsewhere.
type source struct {
	// Policy says where the policy was found; Assumed is why it had to be assumed, "" if not.
	Policy  string `json:"from"`
	Assumed string `json:"assumedBecause,omitempty"`
	// gaps are what could not be read; noOwners: owners are among it.
	gaps     []string
	noOwners bool
}

// whole returns errPartial if an answer made from it lacks something, or may be by another policy than the scheduler's.
func (s *source) whole() error {
	if len(s.gaps) > 0 || s.Assumed != "" {
		return errPartial
	}
	return nil
}

// qualified returns the beginning of a sentence that says that something is not there: owners that could not be read may hide it.
func (s *source) qualified(sentence string) string {
	if s.noOwners {
		return "As far as can be told without all owners of pods: " + strings.ToLower(sentence[:1]) + sentence[1:]
	}
	return sentence
}

// machine prints an answer for programs, as an object of that kind; with -o name the objects that it is about, a line each.
func (p *printing) machine(out io.Writer, kind string, from *source, answer any, about []report.Ref) error {
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
	printer, err := p.flags.ToPrinter()
	if err != nil {
		return err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &object.Object); err != nil {
		return err
	}
	if data, err = json.Marshal(from); err != nil {
		return err
	}
	var readFrom map[string]any
	if err := json.Unmarshal(data, &readFrom); err != nil {
		return err
	}
	gaps := make([]any, len(from.gaps))
	for i, gap := range from.gaps {
		gaps[i] = gap
	}
	object.Object["readPolicy"], object.Object["gaps"] = readFrom, gaps
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	return printer.PrintObj(object, out)
}

// table is what a person reads.
type table struct {
	metav1.Table
	colours []colour // of the rows
}

// column adds a column; of the wide ones only -o wide shows anything.
func (t *table) column(name string, wide bool) {
	column := metav1.TableColumnDefinition{Name: name, Type: "string"}
	if wide {
		column.Priority = 1
	}
	t.ColumnDefinitions = append(t.ColumnDefinitions, column)
}

func (t *table) row(c colour, cells ...any) {
	t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	t.colours = append(t.colours, c)
}

// colour is how a terminal is told of one; "" is its own.
type colour string

const (
	plain  colour = ""
	red    colour = "\x1b[31m"
	yellow colour = "\x1b[33m"
	end           = "\x1b[0m"
)

// table prints a table, in colours only on a terminal. One without rows prints nothing.
func (p *printing) table(out io.Writer, t *table) error {
	if len(t.Rows) == 0 {
		return nil
	}
	var text bytes.Buffer
	printer := printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide(), NoHeaders: p.noHeaders})
	if err := printer.PrintObj(&t.Table, &text); err != nil {
		return err
	}
	if !printers.AllowsColorOutput(out) {
		_, err := out.Write(text.Bytes())
		return err
	}
	_, err := io.WriteString(out, coloured(text.String(), t.colours, p.noHeaders))
	return err
}

// coloured gives each row its colour.
func coloured(text string, colours []colour, noHeaders bool) string {
	var b strings.Builder
	row := -1
	if noHeaders {
		row = 0
	}
	for line := range strings.Lines(text) {
		if row >= 0 && colours[row] != plain {
			line = string(colours[row]) + strings.TrimSuffix(line, "\n") + end + "\n"
		}
		b.WriteString(line)
		row++
	}
	return b.String()
}

// cell prints what may be empty, as kubectl does: programs count columns.
func cell(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// number prints what may not be known.
func number(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
