// Tiny is a small program with two modules, for the tests of hack/release.
package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

var version string // set by the linker

func main() {
	out, err := yaml.Marshal(version)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(out))
}
