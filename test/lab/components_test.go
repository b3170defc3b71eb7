package lab

import "testing"

// TestFreePorts requests so many ports that random choice would repeat some: it requests 3,000 of
// some 28,000, or even 64,000.
func TestFreePorts(t *testing.T) {
	const ports = 3000
	one, other := &ControlPlane{address: loopback()}, &ControlPlane{address: loopback()}
	drawn := map[string]bool{}
	for range ports / 2 {
		for _, cp := range []*ControlPlane{one, other} {
			port, err := cp.freePort()
			must(t, err)
			if drawn[port] {
				t.Errorf("port %s was returned twice", port)
			}
			drawn[port] = true
		}
	}
}
