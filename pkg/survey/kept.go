package survey

import (
	"encoding/binary"
	"errors"
)

// errMessage is the error for bytes that are no encoded message.
var errMessage = errors.New("expected an encoded message")

// kept says which fields of a message are decoded. Fields that are not named are if others is true.
type kept struct {
	fields fields
	others bool
}

// fields are fields of a message by their numbers in the API's .proto files; nil keeps one as it is.
type fields map[uint64]*kept

// parts are what is decoded of an object. Most objects of a kind have the same in common with many others, so that is decoded once for all
// that have it; own is what each has of its own. With a nil common nothing is taken to be. No field may be in both: own is decoded into a
// copy of common, and all copies share its maps and slices.
type parts struct{ common, own *kept }

// What is read of objects. Less to decode is less to hold, and less for the collector of garbage to look at: of a pod most is its environment,
// probes and mounts, and who set which field.
var (
	keptMeta = &kept{fields: fields{17: dropped}, others: true} // but managedFields
	// name, ports, resources, resizePolicy, restartPolicy
	keptContainer = &kept{fields: fields{1: nil, 6: nil, 8: nil, 23: nil, 24: nil}}
	// of the source a claim; not the name, which would leave no two pods alike: that of the volume with the token is another in each
	keptVolume = &kept{fields: fields{2: {fields: fields{10: nil}}}}
	// of the spec volumes, containers and initContainers in part
	keptTemplate = &kept{fields: fields{1: keptMeta, 2: {fields: fields{1: keptVolume, 2: keptContainer, 20: keptContainer}, others: true}}}
	// of the status images, volumesInUse and volumesAttached are dropped
	keptNode = &kept{fields: fields{1: keptMeta, 3: {fields: fields{8: dropped, 9: dropped, 10: dropped},
		others: true}}, others: true}
	// the template is the third field of the spec in Deployments, ReplicaSets and StatefulSets
	keptOwner      = &kept{fields: fields{1: keptMeta, 2: {fields: fields{3: keptTemplate}, others: true}}, others: true}
	keptReplicaSet = &kept{fields: fields{1: keptMeta, 2: {fields: fields{3: dropped}, others: true}}, others: true}
	keptObject     = &kept{fields: fields{1: keptMeta}, others: true}

	// Most pods of one owner have the same labels, owner references and so on, and the same specification but for nodeName, hostname and
	// affinity, in which those of DaemonSets have their node. Those of StatefulSets and indexed Jobs have labels with their numbers.
	commonPod = &kept{fields: fields{
		1: {fields: fields{2: nil, 3: nil, 11: nil, 13: nil, 14: nil}}, // generateName, namespace, labels, ownerReferences, finalizers
		2: {fields: fields{1: keptVolume, 2: keptContainer, 20: keptContainer, 10: dropped, 16: dropped, 18: dropped}, others: true},
	}}
	// Annotations are a pod's own: what connects pods to the network writes their addresses there.
	ownPod = &kept{fields: fields{
		1: {fields: fields{2: dropped, 3: dropped, 11: dropped, 13: dropped, 14: dropped, 17: dropped}, others: true},
		2: {fields: fields{10: nil, 16: nil, 18: nil}},
		// of the status hostIP, podIP, startTime, podIPs, ephemeralContainerStatuses and hostIPs are dropped
		3: {fields: fields{
			5: dropped, 6: dropped, 7: dropped, 8: keptStatus, 10: keptStatus, 12: dropped, 13: dropped, 16: dropped,
		}, others: true},
	}, others: true}
	// of a container's status name, allocatedResources, resources
	keptStatus = &kept{fields: fields{1: nil, 10: nil, 11: nil}}

	dropped = &kept{}
)

// partsOf returns what is decoded of a resource.
func partsOf(resource string) parts {
	switch resource {
	case "pods":
		return parts{commonPod, ownPod}
	case "nodes":
		return parts{own: keptNode}
	case "replicasets":
		return parts{own: keptReplicaSet}
	case "deployments", "statefulsets":
		return parts{own: keptOwner}
	}
	return parts{own: keptObject}
}

// appendTo appends to b what is kept of a message, without the messages in it of which nothing is.
func (k *kept) appendTo(b, message []byte) ([]byte, error) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return nil, errMessage
		}
		size, m := binary.Uvarint(message[n:]) // or the value itself, of a number
		if m <= 0 {
			return nil, errMessage
		}
		head := n + m
		if tag&7 == varintType {
			size = 0
		} else if tag&7 != bytesType || size > uint64(len(message)-head) {
			return nil, errMessage
		}
		end := head + int(size)
		inner, named := k.fields[tag>>3]
		switch {
		case named && inner == nil || !named && k.others:
			b = append(b, message[:end]...)
		case named && inner != dropped:
			start := len(b)
			b = append(b, message[:n]...)
			// The length comes first and is not known yet: five bytes are more than it takes.
			at := len(b)
			var err error
			if b, err = inner.appendTo(append(b, 0, 0, 0, 0, 0), message[head:end]); err != nil {
				return nil, err
			}
			length := len(b) - at - 5
			if length == 0 {
				b = b[:start]
				break
			}
			for i := range 4 {
				b[at+i] = byte(length>>(7*i))&0x7f | 0x80
			}
			b[at+4] = byte(length >> 28)
		}
		message = message[end:]
	}
	return b, nil
}
