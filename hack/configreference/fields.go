package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// row describes a field or a flag. values is empty for a flag.
type row struct{ name, values, def, meaning string }

// values describes the values of types. A field of any other type is a string with constants, a
// list, a struct or a setting of workloads.
var values = map[reflect.Type]string{
	reflect.TypeFor[bool]():                 "`true`, `false`",
	reflect.TypeFor[int32]():                "a whole number",
	reflect.TypeFor[float64]():              "a number",
	reflect.TypeFor[string]():               "a string",
	reflect.TypeFor[[]string]():             "list of strings",
	reflect.TypeFor[metav1.Duration]():      `a duration such as "30s"`,
	reflect.TypeFor[metav1.LabelSelector](): "[label selector](https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors)",
}

// section returns the section of the page about a kind: a table of its fields, a table for each
// field with fields of its own, and a table for each type in a list.
func (k *kind) section() (string, error) {
	w := &walk{sources: sources{}, embedded: map[reflect.Type]string{}}
	object := reflect.ValueOf(k.defaults).Elem()
	about, err := w.sources.ofType(object.Type())
	if err != nil {
		return "", err
	}
	rows, err := w.rows(object, "")
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("\n## %s\n%s %s\n\n%s", k.Kind, about, k.where, table("field", rows))
	// A field that is a list or a struct appends to w.tables.
	for i := 0; i < len(w.tables); i++ {
		t := w.tables[i]
		rows, err := w.rows(t.object, t.prefix)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("\n### %s\n%s\n\n%s", t.title, t.about, table("field", rows))
	}
	return text, nil
}

// walk visits the fields of a kind.
type walk struct {
	sources sources
	tables  []nested
	// embedded are the embedded structs that have rows, and the type that they are in.
	embedded map[reflect.Type]string
}

// nested is a struct with a table of its own.
type nested struct {
	title, about, prefix string
	object               reflect.Value
}

// rows returns a row for each field of an object. path is the prefix of their names. A struct in a
// kind gets a table of its own. The fields of other structs, and of embedded ones, are rows.
func (w *walk) rows(object reflect.Value, path string) ([]row, error) {
	var rows []row
	for member, value := range object.Fields() {
		if !member.IsExported() || member.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		about, err := w.sources.ofField(object.Type(), member)
		if err != nil {
			return nil, err
		}
		isStruct := member.Type.Kind() == reflect.Struct && values[member.Type] == ""
		switch in, known := w.embedded[member.Type]; {
		case known:
			first, last := member.Type.Field(0), member.Type.Field(member.Type.NumField()-1)
			rows = append(rows, row{name(first) + "` to `" + name(last), fmt.Sprintf("as in [%s](#%s)", in, strings.ToLower(in)), "", about})
		case isStruct && !member.Anonymous && path == "":
			w.tables = append(w.tables, nested{name(member), about, name(member) + ".", value})
		case isStruct:
			prefix := path
			if member.Anonymous {
				w.embedded[member.Type] = object.Type().Name()
			} else {
				prefix += name(member) + "."
			}
			inner, err := w.rows(value, prefix)
			if err != nil {
				return nil, err
			}
			rows = append(rows, inner...)
		default:
			r, err := w.row(member, value)
			if err != nil {
				return nil, err
			}
			r.name, r.meaning = path+name(member), about
			if r.def != "" && value.Kind() != reflect.Slice && !states(about, r.def) {
				return nil, fmt.Errorf("%s: expected a comment that states the default %s, got %q", r.name, r.def, about)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// row returns the permitted values and the default of a field that is not a struct.
func (w *walk) row(member reflect.StructField, value reflect.Value) (r row, err error) {
	t := member.Type
	if t.Kind() == reflect.Pointer {
		t, value = t.Elem(), value.Elem()
	}
	if value.IsValid() {
		r.def = def(value.Interface())
	}
	if r.values = values[t]; r.values != "" {
		return r, nil
	}
	if t.Kind() == reflect.Slice {
		element := t.Elem()
		about, err := w.sources.ofType(element)
		w.tables = append(w.tables, nested{element.Name(), about, "", reflect.Zero(element)})
		r.values = fmt.Sprintf("list of [%s](#%s)", element.Name(), strings.ToLower(element.Name()))
		return r, err
	}
	for i := range decision.Settings {
		if s := &decision.Settings[i]; s.Name == name(member) && t.Kind() == reflect.Struct {
			r.values = s.Values
			return r, nil
		}
	}
	words, err := w.sources.words(t)
	r.values = "`" + strings.Join(words, "`, `") + "`"
	return r, err
}

// def returns a default as text; "" for none.
func def(value any) string {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return strings.Join(v, ", ")
	case metav1.Duration:
		return short(v.Duration)
	case config.DurationOrNever:
		return short(v.Duration.Duration)
	case intstr.IntOrString:
		return v.String()
	case int32:
		return strconv.Itoa(int(v))
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

// short returns a duration without the units that are 0.
func short(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, unit) {
			text = strings.TrimSuffix(text, unit[1:])
		}
	}
	return text
}

// states reports whether a comment states a default.
func states(comment, def string) bool {
	def = regexp.QuoteMeta(def)
	return regexp.MustCompile(`Default "?` + def + `(\W|$)|\b` + def + `"? (\(the|is the) default|and "` + def + `"`).MatchString(comment)
}

// name returns the name of a field in YAML.
func name(member reflect.StructField) string {
	name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
	return name
}

// table returns rows as Markdown.
func table(first string, rows []row) string {
	hasValues := len(rows) > 0 && rows[0].values != ""
	text := fmt.Sprintf("| %s | values | default | meaning |\n|---|---|---|---|\n", first)
	if !hasValues {
		text = fmt.Sprintf("| %s | default | meaning |\n|---|---|---|\n", first)
	}
	for _, row := range rows {
		text += fmt.Sprintf("| `%s` | ", row.name)
		if hasValues {
			text += row.values + " | "
		}
		if row.def == "" {
			text += "none"
		} else {
			text += "`" + row.def + "`"
		}
		text += " | " + row.meaning + " |\n"
	}
	return text
}
