package survey

import "testing"

// TestMasksAreDisjoint checks that no field of a pod's metadata, specification and status is in
// both masks. These three are structs inside the pod and are copied with it. Their fields may be
// pointers, which are shared.
func TestMasksAreDisjoint(t *testing.T) {
	const maxField = 100 // more than any message has fields
	for outer := range uint64(maxField) {
		common, own := maskOf(maskCommonPod, outer), maskOf(maskOwnPod, outer)
		if common == dropped || own == dropped {
			continue
		}
		for inner := range uint64(maxField) {
			if maskOf(common, inner) != dropped && maskOf(own, inner) != dropped {
				t.Errorf("field %d.%d is in both", outer, inner)
			}
		}
	}
}

// maskOf returns the mask of a field of k, as in fields.
func maskOf(k *fieldMask, number uint64) *fieldMask {
	if k == nil {
		return nil
	}
	if inner, named := k.fields[number]; named || k.others {
		return inner
	}
	return dropped
}
