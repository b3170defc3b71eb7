package docs

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

// TestDefaultsAreDocumented checks that the reference states each default in the row of its field.
func TestDefaultsAreDocumented(t *testing.T) {
	safety, preference := &config.ReplicaSafetyArgs{}, &config.SpotPreferenceArgs{}
	safety.SetDefaults()
	preference.SetDefaults()
	page := read(t, "docs/reference/configuration.md")
	found := 0
	for _, object := range []any{safety, preference, controller.Default()} {
		for name, value := range defaults("", reflect.ValueOf(object).Elem()) {
			found++
			row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(name) + "` \\|.*$").FindString(page)
			def := regexp.QuoteMeta(value)
			if !regexp.MustCompile(`Default "?` + def + `(\W|$)|\b` + def + `"? (\(the|is the) default|and "` + def + `"`).MatchString(row) {
				t.Errorf("%s: expected a comment that states the default %s, got %q", name, value, row)
			}
		}
	}
	if found < 40 {
		t.Errorf("found %d defaults, expected at least 40", found)
	}
}

// defaults returns the values of the set fields of an object, by their paths. It omits lists and
// maps.
func defaults(prefix string, object reflect.Value) map[string]string {
	all := map[string]string{}
	for field, value := range object.Fields() {
		if !field.IsExported() || field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		value = reflect.Indirect(value)
		switch {
		case !value.IsValid() || value.Kind() == reflect.Slice || value.Kind() == reflect.Map || value.Kind() == reflect.String && value.Len() == 0:
		case field.Anonymous:
			maps.Copy(all, defaults(prefix, value))
		case isObject(value):
			maps.Copy(all, defaults(prefix+name+".", value))
		default:
			text, err := json.Marshal(value.Interface())
			if err != nil {
				panic(err)
			}
			// A duration without the units that are 0.
			all[prefix+name] = regexp.MustCompile(`([mh])0[ms](0s)?$`).ReplaceAllString(strings.Trim(string(text), `"`), "$1")
		}
	}
	return all
}

// isObject reports whether a value is a struct with fields of its own.
func isObject(value reflect.Value) bool {
	_, isLeaf := value.Interface().(json.Marshaler)
	return value.Kind() == reflect.Struct && !isLeaf
}
