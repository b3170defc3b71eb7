package decoding

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type word string

type common struct {
	Quantity *intstr.IntOrString `json:"quantity,omitempty"`
	Word     *word               `json:"word,omitempty"`
}

type element struct {
	common `json:",inline"`
	Name   string `json:"name,omitempty"`
}

type object struct {
	metav1.TypeMeta `json:",inline"`
	common          `json:",inline"`
	Duration        metav1.Duration       `json:"duration"`
	Optional        *metav1.Duration      `json:"optional,omitempty"`
	On              bool                  `json:"on,omitempty"`
	Count           *int32                `json:"count,omitempty"`
	Ratio           *float64              `json:"ratio,omitempty"`
	List            []string              `json:"list,omitempty"`
	Elements        []element             `json:"elements,omitempty"`
	Selector        *metav1.LabelSelector `json:"selector,omitempty"`
}

func TestUnmarshal(t *testing.T) {
	one, two, text, spelled, minute, half := int32(1), intstr.FromInt32(2), intstr.FromString("50%"), word("a"), metav1.Duration{Duration: time.Minute}, 0.5
	got := object{On: true, List: []string{"default", "other"}}
	fieldErrs, err := Unmarshal([]byte(`{"kind": "K", "quantity": 2, "word": "a", "duration": "1s", "optional": "1m", "on": null, "count": 1, "ratio": 0.5,
		"list": ["x"], "elements": [{"name": "n", "quantity": "50%"}, {}], "selector": {"matchLabels": {"a/b": "c", "1": "d"},
		"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}}`), &got)
	if err != nil || fieldErrs != nil {
		t.Fatalf("errors %v, error %v", fieldErrs, err)
	}
	want := object{
		TypeMeta: metav1.TypeMeta{Kind: "K"}, common: common{Quantity: &two, Word: &spelled}, Duration: metav1.Duration{Duration: time.Second},
		Optional: &minute, On: true, Count: &one, Ratio: &half, List: []string{"x"},
		Elements: []element{{Name: "n", common: common{Quantity: &text}}, {}},
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a/b": "c", "1": "d"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"v"}}}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(object{}, element{})); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		want []string // type, path, value
	}{
		"all at once": {`{"duration": 5, "on": "true", "count": 1.5, "ratio": "NaN", "list": ["a", 5], "speed": 1, "elements": [{"name": [1]}]}`, []string{
			"Invalid duration 5", "Invalid on true", "Invalid count 1.5", "Invalid ratio NaN", "Invalid list[1] 5", "Invalid elements[0].name [1]", "Forbidden speed ",
		}},
		"durations":        {`{"duration": "soon", "optional": ""}`, []string{"Invalid duration soon", "Invalid optional "}},
		"structures":       {`{"list": "a", "elements": {"name": "a"}, "selector": []}`, []string{"Invalid list a", `Invalid elements {"name": "a"}`, "Invalid selector []"}},
		"elements":         {`{"elements": [5, {"name": "a"}], "list": [{"on": 5}, "a"]}`, []string{"Invalid elements[0] 5", `Invalid list[0] {"on": 5}`}},
		"too large":        {`{"count": 3000000000}`, []string{"Invalid count 3000000000"}},
		"a selector":       {`{"selector": {"matchLabels": {"a": 5}, "matchNames": []}}`, []string{"Invalid selector.matchLabels.a 5", "Forbidden selector.matchNames "}},
		"unknown, nested":  {`{"elements": [{}, {"floor": {"name": "x"}, "name": "b", "Name": "c"}], "ON": true}`, []string{"Forbidden elements[1].floor ", "Forbidden elements[1].Name ", "Forbidden ON "}},
		"words as numbers": {`{"word": 5, "quantity": true}`, nil},
		"no object":        {`5`, []string{"Invalid <nil> 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			fieldErrs, err := Unmarshal([]byte(test.data), &object{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range fieldErrs {
				if !strings.Contains(m.Detail, "expected ") {
					t.Errorf("%v does not name what was expected", m)
				}
				kind, value := "Invalid", m.BadValue
				if m.Type == field.ErrorTypeForbidden {
					kind = "Forbidden"
				}
				got = append(got, kind+" "+m.Field+" "+value.(string))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// A word or quantity of a wrong type is kept as text, so that validation can name what it expected.
func TestTextOfWrongTypes(t *testing.T) {
	var got object
	if fieldErrs, err := Unmarshal([]byte(`{"word": true, "quantity": 1.5, "elements": [{"word": {"a": 1}}]}`), &got); err != nil || fieldErrs != nil {
		t.Fatalf("errors %v, error %v", fieldErrs, err)
	}
	if *got.Word != "true" || got.Quantity.String() != "1.5" || *got.Elements[0].Word != `{"a": 1}` {
		data, _ := json.Marshal(got)
		t.Errorf("decoded %s", data)
	}
}

func TestNoJSON(t *testing.T) {
	for _, data := range []string{"", "{", `{"on": true, "on": false}`, `{"on": true`} {
		if _, err := Unmarshal([]byte(data), &object{}); err == nil {
			t.Errorf("%q: no error", data)
		}
	}
}

// Validation adds nothing about a value that was not decoded, and all errors have the same root.
func TestJoin(t *testing.T) {
	at := field.NewPath("args")
	decoded := field.ErrorList{field.Invalid(field.NewPath("rules").Index(0), "5", "x"), field.Invalid(field.NewPath("grace"), "5", "x")}
	validated := field.ErrorList{
		field.Required(at.Child("rules").Index(0).Child("name"), ""), field.Required(at.Child("rules").Index(1).Child("name"), ""),
		field.Invalid(at.Child("grace"), 0, ""), field.Invalid(at.Child("graceful"), 0, ""),
	}
	var got []string
	for _, fieldErr := range Join(at, decoded, validated) {
		got = append(got, fieldErr.Field)
	}
	if diff := cmp.Diff([]string{"args.rules[0]", "args.grace", "args.rules[1].name", "args.graceful"}, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if decoded[0].Field != "rules[0]" {
		t.Errorf("Join changed its argument: %v", decoded[0])
	}
}
