package lab

import "testing"

// TestFreePorts asks for so many ports that some would come twice by chance: of some 28,000, or
// even 64,000, 3,000 are drawn.
func TestFreePorts(t *testing.T) {
	const ports = 3000
	one, other := &ControlPlane{address: loopback()}, &ControlPlane{address: loopback()}
	drawn := map[string]bool{}
	for range ports / 2 {
		for _, cp := range []*ControlPlane{one, other} {
			port, err := cp.freePort()
			if err != nil {
				t.Fatal(err)
			}
			if drawn[port] {
				t.Errorf("port %s was handed out twice", port)
			}
			drawn[port] = true
		}
	}
}
