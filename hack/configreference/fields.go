package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/scalar"
)

// row describes a field or a flag. values is empty for a flag.
type row struct{ name, values, def, meaning string }

const selectorLink = "[label selector](https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors)"

var (
	scalarType   = reflect.TypeFor[scalar.Value]()
	selectorType = reflect.TypeFor[*metav1.LabelSelector]()
	typeMetaType = reflect.TypeFor[metav1.TypeMeta]()
)

// section returns the section of the page about a kind: a table of its fields, a table for each
// field with fields of its own, and a table for each type in a list.
func (k *kind) section() (string, error) {
	w := &walk{comments: comments{}}
	if err := w.expect(k); err != nil {
		return "", err
	}
	object := reflect.ValueOf(k.defaults).Elem()
	about, err := w.comments.ofType(object.Type())
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("\n## %s\n%s %s\n", k.Kind, about, k.where)
	var rows []row
	tables := ""
	for member, value := range object.Fields() {
		switch {
		case member.Type == typeMetaType:
		case member.Type.Kind() == reflect.Struct:
			inner, err := w.rows(value, name(member)+".")
			if err != nil {
				return "", err
			}
			about, err := w.comments.ofField(object.Type(), member)
			if err != nil {
				return "", err
			}
			tables += fmt.Sprintf("\n### %s\n%s\n\n%s", name(member), about, table("field", inner))
		default:
			row, err := w.row(object.Type(), member, value, "")
			if err != nil {
				return "", err
			}
			rows = append(rows, row)
		}
	}
	text += "\n" + table("field", rows) + tables
	// A list in a list appends to w.lists.
	for i := 0; i < len(w.lists); i++ {
		list := w.lists[i]
		rows, err := w.rows(reflect.Zero(list.element), list.path+"[].")
		if err != nil {
			return "", err
		}
		for i := range rows {
			rows[i].name = strings.TrimPrefix(rows[i].name, list.path+"[].")
		}
		about, err := w.comments.ofType(list.element)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("\n### %s\n%s\n\n%s", list.element.Name(), about, table("field", rows))
	}
	return text, nil
}

// walk visits the fields of a kind.
type walk struct {
	comments comments
	// expected are the permitted values of scalars by path, such as rules[].minOnDemand.
	expected map[string]string
	lists    []list
}

// list is a field that is a list of structs.
type list struct {
	path    string
	element reflect.Type
}

// rows returns a row for each field of an object, including the fields of nested structs. path is
// the prefix of their names.
func (w *walk) rows(object reflect.Value, path string) ([]row, error) {
	var rows []row
	for member, value := range object.Fields() {
		if member.Type.Kind() == reflect.Struct {
			inner, err := w.rows(value, path+name(member)+".")
			if err != nil {
				return nil, err
			}
			rows = append(rows, inner...)
			continue
		}
		row, err := w.row(object.Type(), member, value, path)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// row returns the row of a field that is not a struct.
func (w *walk) row(parent reflect.Type, member reflect.StructField, value reflect.Value, path string) (row, error) {
	r := row{name: path + name(member)}
	switch elem := member.Type; {
	case elem == scalarType:
		r.values = w.expected[r.name]
	case elem == selectorType:
		r.values = selectorLink
	case elem.Kind() == reflect.String:
		r.values = "a string"
	case elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct:
		r.values = fmt.Sprintf("list of [%s](#%s)", elem.Elem().Name(), strings.ToLower(elem.Elem().Name()))
		w.lists = append(w.lists, list{r.name, elem.Elem()})
	case elem.Kind() == reflect.Slice && w.expected[r.name+"[]"] != "":
		r.values = "list; each " + w.expected[r.name+"[]"]
	case elem == reflect.TypeFor[[]string]():
		r.values = "list of strings"
	}
	if r.values == "" {
		return row{}, fmt.Errorf("%s: expected a type of this program, or an error of validation, for type %s", r.name, member.Type)
	}
	about, err := w.comments.ofField(parent, member)
	if err != nil {
		return row{}, err
	}
	r.meaning = about
	switch value := value.Interface().(type) {
	case scalar.Value:
		r.def = string(value)
		if value != "" && !states(about, r.def) {
			return row{}, fmt.Errorf("%s: expected a comment that states the default %s, got %q", r.name, value, about)
		}
	case []scalar.Value:
		var words []string
		for _, word := range value {
			words = append(words, string(word))
		}
		r.def = strings.Join(words, ", ")
	}
	return r, nil
}

// states reports whether a comment states a default.
func states(comment, def string) bool {
	def = regexp.QuoteMeta(def)
	return regexp.MustCompile(`Default "?` + def + `\b|\b` + def + `"? (\(the|is the) default|and "` + def + `"`).MatchString(comment)
}

// expect fills in w.expected: it validates an object in which every scalar is invalid.
func (w *walk) expect(k *kind) error {
	object := invalid(reflect.TypeOf(k.defaults).Elem()).(map[string]any)
	object["apiVersion"], object["kind"] = k.APIVersion, k.Kind
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var aggregate utilerrors.Aggregate
	if err := k.validate(data); !errors.As(err, &aggregate) {
		return fmt.Errorf("validation of invalid values: expected several errors, got %w", err)
	}
	w.expected = map[string]string{}
	for _, err := range aggregate.Errors() {
		var mistake *field.Error
		if !errors.As(err, &mistake) {
			return fmt.Errorf("validation of invalid values: expected errors of fields, got %w", err)
		}
		if expected, ok := strings.CutPrefix(mistake.Detail, "expected "); ok {
			expected, _, _ = strings.Cut(expected, ": ")
			w.expected[strings.ReplaceAll(mistake.Field, "[0]", "[]")] = words(expected)
		}
	}
	return nil
}

// words formats the words in "one of Allow, StricterOnly, Ignore" and in "Allow or Never" as code.
func words(expected string) string {
	list, ok := strings.CutPrefix(expected, "one of ")
	if !ok {
		if first, second, isPair := strings.Cut(expected, " or "); isPair && !strings.Contains(first+second, " ") {
			list, ok = first+", "+second, true
		}
	}
	if !ok {
		return expected
	}
	return "`" + strings.ReplaceAll(list, ", ", "`, `") + "`"
}

// invalid returns the JSON of a type with one element in every list, and an invalid value for every
// scalar and for every string in a list. Other strings and selectors are unset.
func invalid(t reflect.Type) any {
	switch {
	case t == scalarType:
		return "?"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return []string{"?"}
	case t.Kind() == reflect.Slice:
		return []any{invalid(t.Elem())}
	case t.Kind() == reflect.Struct:
		object := map[string]any{}
		for member := range t.Fields() {
			if value := invalid(member.Type); value != nil && member.Type != typeMetaType {
				object[name(member)] = value
			}
		}
		return object
	}
	return nil
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
