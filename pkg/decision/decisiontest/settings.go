// Package decisiontest lets tests iterate over the settings of workloads, so that a new setting is
// tested without being added to a list.
package decisiontest

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

var word = regexp.MustCompile(`"[^"]*"|\w+`)

// OtherValue returns a valid value of a setting that differs from its value in settings. It is a
// word of Setting.Values, so it panics if that text contains no such value.
func OtherValue(setting *decision.Setting, settings decision.WorkloadSettings) string {
	for _, value := range word.FindAllString(setting.Values, -1) {
		value = strings.Trim(value, `"`)
		overrides, invalid := decision.ParseOverrides(map[string]string{setting.Name: value})
		if len(invalid) == 0 && setting.Text(overrides.Apply(settings)) != setting.Text(settings) {
			return value
		}
	}
	panic(fmt.Sprintf("%s: expected a value other than %s in its description %q", setting.Name, setting.Text(settings), setting.Values))
}

// Examples returns the values of a setting that its description quotes, such as "30%".
func Examples(setting *decision.Setting) (values []string) {
	for _, value := range word.FindAllString(setting.Values, -1) {
		if strings.HasPrefix(value, `"`) {
			values = append(values, strings.Trim(value, `"`))
		}
	}
	return values
}
