package turns

import (
	"strings"
	"testing"
	"time"
)

func TestQueue(t *testing.T) {
	queue := NewQueue("test", time.Millisecond, time.Second, func(item string) string { return item[:1] })
	defer queue.ShutDown()
	add := func(items string) {
		for _, item := range strings.Fields(items) {
			queue.Add(item)
		}
	}
	want := func(items string) {
		t.Helper()
		var got []string
		for range strings.Fields(items) {
			item, _ := queue.Get()
			got = append(got, item)
			queue.Done(item)
		}
		if strings.Join(got, " ") != items {
			t.Errorf("got %s, want %s", got, items)
		}
	}
	add("a1 a2 a3 a4 b1 a1")
	want("a1 b1 a2")
	add("b2 c1 a1")
	want("a3 b2 c1 a4 a1")
	if n := queue.Len(); n != 0 {
		t.Errorf("%d items are left", n)
	}
	add("a1")
	queue.AddRateLimited("b1")
	want("a1 b1")
}
