// Tiny is a small program for the tests of hack/release. go.mod replaces one of its modules.
package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

var version string // set by the linker

func main() {
	out, err := yaml.Marshal(types.UID(version))
	if err != nil {
		panic(err)
	}
	fmt.Print(string(out))
}
