package survey

import (
	"encoding/binary"
	"errors"
)

// errMessage is the error for bytes that are not an encoded message.
var errMessage = errors.New("expected an encoded message")

// fieldMask selects the fields of a message to decode. If others is true, it also selects the
// fields that fields does not name.
type fieldMask struct {
	fields fields
	others bool
}

// fields contains fields of a message by their numbers in the API's .proto files. nil selects a
// whole field.
type fields map[uint64]*fieldMask

// masks selects the parts of an object to decode. common selects the part that many objects of a
// kind share. It is decoded only once. own selects the part that is decoded for each
// object. If common is nil, objects share nothing. No field may be in both masks: own is decoded
// into a copy of common, and all copies share its maps and slices.
type masks struct{ common, own *fieldMask }

// The fields that survey reads. Decoding fewer fields saves memory and garbage collection. Most of
// a pod is its environment, probes, mounts and managedFields.
var (
	maskMeta = &fieldMask{fields: fields{17: dropped}, others: true} // without managedFields
	// name, ports, resources, resizePolicy, restartPolicy
	maskContainer = &fieldMask{fields: fields{1: nil, 6: nil, 8: nil, 23: nil, 24: nil}}
	// The claim of the source. Without the name of the volume, because the token volume has a
	// random name, so that no two pods would be equal.
	maskVolume = &fieldMask{fields: fields{2: {fields: fields{10: nil}}}}
	// The spec, with parts of the volumes, containers and initContainers.
	maskTemplate = &fieldMask{fields: fields{1: maskMeta, 2: {fields: fields{1: maskVolume, 2: maskContainer, 20: maskContainer}, others: true}}}
	// Without images, volumesInUse and volumesAttached in the status.
	maskNode = &fieldMask{fields: fields{1: maskMeta, 3: {fields: fields{8: dropped, 9: dropped, 10: dropped},
		others: true}}, others: true}
	// In Deployments, ReplicaSets and StatefulSets, the template is the third field of the spec.
	maskOwner      = &fieldMask{fields: fields{1: maskMeta, 2: {fields: fields{3: maskTemplate}, others: true}}, others: true}
	maskReplicaSet = &fieldMask{fields: fields{1: maskMeta, 2: {fields: fields{3: dropped}, others: true}}, others: true}
	maskObject     = &fieldMask{fields: fields{1: maskMeta}, others: true}

	// Most pods of one owner have the same labels, owner references and so on. They also have the
	// same specification, except nodeName, hostname and affinity: a DaemonSet pod has its node in
	// its affinity. Pods of StatefulSets and indexed Jobs have labels with their own number.
	maskCommonPod = &fieldMask{fields: fields{
		1: {fields: fields{2: nil, 3: nil, 11: nil, 13: nil, 14: nil}}, // generateName, namespace, labels, ownerReferences, finalizers
		2: {fields: fields{1: maskVolume, 2: maskContainer, 20: maskContainer, 10: dropped, 16: dropped, 18: dropped}, others: true},
	}}
	// Every pod has its own annotations: network plugins write its addresses there.
	maskOwnPod = &fieldMask{fields: fields{
		1: {fields: fields{2: dropped, 3: dropped, 11: dropped, 13: dropped, 14: dropped, 17: dropped}, others: true},
		2: {fields: fields{10: nil, 16: nil, 18: nil}},
		// Without hostIP, podIP, startTime, podIPs, ephemeralContainerStatuses and hostIPs in the
		// status.
		3: {fields: fields{
			5: dropped, 6: dropped, 7: dropped, 8: maskStatus, 10: maskStatus, 12: dropped, 13: dropped, 16: dropped,
		}, others: true},
	}, others: true}
	// name, allocatedResources and resources of a container's status.
	maskStatus = &fieldMask{fields: fields{1: nil, 10: nil, 11: nil}}

	dropped = &fieldMask{}
)

// masksOf returns the parts of a resource's objects to decode.
func masksOf(resource string) masks {
	switch resource {
	case "pods":
		return masks{maskCommonPod, maskOwnPod}
	case "nodes":
		return masks{own: maskNode}
	case "replicasets":
		return masks{own: maskReplicaSet}
	case "deployments", "statefulsets":
		return masks{own: maskOwner}
	}
	return masks{own: maskObject}
}

// appendTo appends the selected fields of message to b. It omits embedded messages without selected
// fields.
func (k *fieldMask) appendTo(b, message []byte) ([]byte, error) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return nil, errMessage
		}
		size, m := binary.Uvarint(message[n:]) // the length, or the value of a number
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
			// The length precedes the message, but is not known yet. Five bytes are enough for it.
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
