package listertest

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// TB is the part of testing.TB that Dump uses. *rapid.T has it too.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Dump returns objects in the form of kubectl get -o json.
func Dump(t TB, objects ...runtime.Object) string {
	t.Helper()
	items := []any{}
	for _, object := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		if meta := object.(metav1.Object); meta.GetUID() == "" {
			meta.SetUID("uid")
		}
		items = append(items, object)
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items}
	data, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
