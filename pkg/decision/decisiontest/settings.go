// Package decisiontest lets tests iterate over the settings of workloads, so that a new setting is
// tested without being added to a list.
package decisiontest

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	word   = regexp.MustCompile(`\w+`)
)

// Examples returns the values of a setting that Setting.Values quotes, such as "30%".
func Examples(setting *decision.Setting) (values []string) {
	for _, value := range quoted.FindAllString(setting.Values, -1) {
		values = append(values, strings.Trim(value, `"`))
	}
	return values
}

// OtherValue returns a valid value of a setting that differs from its value in settings: an
// example, or another word of Setting.Values. It panics if that text contains no such value.
func OtherValue(setting *decision.Setting, settings decision.WorkloadSettings) string {
	for _, value := range append(Examples(setting), word.FindAllString(setting.Values, -1)...) {
		overrides, invalid := decision.ParseOverrides(map[string]string{setting.Name: value})
		if len(invalid) == 0 && setting.Text(overrides.Apply(settings)) != setting.Text(settings) {
			return value
		}
	}
	panic(fmt.Sprintf("%s: expected a value other than %s in its description %q", setting.Name, setting.Text(settings), setting.Values))
}
