package survey

import "testing"

// TestPartsAreApart: no field of a pod's metadata, specification and status is in both parts. These three are structs inside of the pod,
// which are copied with it; what is in them may be a pointer, which is shared.
func TestPartsAreApart(t *testing.T) {
	const most = 100 // more than any of the messages has fields
	for outer := range uint64(most) {
		common, own := of(commonPod, outer), of(ownPod, outer)
		if common == dropped || own == dropped {
			continue
		}
		for inner := range uint64(most) {
			if of(common, inner) != dropped && of(own, inner) != dropped {
				t.Errorf("field %d.%d is in both", outer, inner)
			}
		}
	}
}

// of returns what is decoded of a field of k, as in fields.
func of(k *kept, number uint64) *kept {
	if k == nil {
		return nil
	}
	if inner, named := k.fields[number]; named || k.others {
		return inner
	}
	return dropped
}
