package main

import (
	"os"
	"strings"
	"testing"
)

// TestDraw checks the number of replicas of each kind. make verify compares the picture. The legend
// has one of each.
func TestDraw(t *testing.T) {
	picture, err := draw("text\n storefront       Deployment      3 of 10 │   10/10       0   2.6 s │    7/10       3       -\n")
	if err != nil {
		t.Fatal(err)
	}
	for want, count := range map[string]int{
		`fill="` + onDemandColor + `"`:           3*3 + 1,
		`fill="` + spotColor + `"`:               10 + 7 + 1,
		`stroke="` + lostColor + `"`:             10 + 7 + 1,
		`fill="none" stroke="` + spotColor + `"`: 10 + 7 + 1,
		">10 ready<":                             2, ">0 ready<": 1, ">3 ready<": 1, ">10 return<": 1, ">7 return<": 1, "floor of 3": 1,
	} {
		if got := strings.Count(picture, want); got != count {
			t.Errorf("the picture has %d %s, want %d", got, want, count)
		}
	}
}

func TestDrawRefusesOtherPages(t *testing.T) {
	if _, err := draw("# What the demo shows\n"); err == nil || !strings.Contains(err.Error(), "found no row of storefront") {
		t.Errorf("a page without the table: %v", err)
	}
	page, err := os.ReadFile("../../docs/demo.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := draw(string(page)); err != nil {
		t.Errorf("docs/demo.md: %v", err)
	}
}
