package decision

import "fmt"

// InvalidAnnotation is an annotation, or a setting of the configuration, that was skipped because
// its value is invalid.
type InvalidAnnotation struct {
	// Object is the kind of the object with the annotation; "pod" for the pod itself, and "" for
	// the configuration, whose Key is the name of the setting.
	Object, Key, Value string
	// Expected describes the expected format of the value.
	Expected string
}

// String returns a message for users. It truncates a long value, because the API server rejects an
// event whose message is too long.
func (i InvalidAnnotation) String() string {
	const most = 64
	value := []rune(i.Value)
	if len(value) > most {
		value = append(value[:most:most], '…')
	}
	return fmt.Sprintf("annotation %s on the %s is ignored: invalid value %q: %s", i.Key, i.Object, string(value), i.Expected)
}
