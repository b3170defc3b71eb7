package survey

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// batchSize is the approximate size in bytes of the objects that are decoded at a time.
const batchSize = 1 << 20

// decoders is the number of batches of one resource that are decoded concurrently.
const decoders = 2

// object is a pointer to an API object that can decode itself.
type object[T any] interface {
	*T
	metav1.Object
	Unmarshal(data []byte) error
}

// list stores all objects of a resource, without large fields that no reader uses. It decodes and
// stores objects while they arrive. With a typed client, the API server and this program would wait
// for each other, and the list would be in memory three times. Paging does not help: the API server
// reads all pages except the first from etcd, which costs it three times as much as its cache. The
// server must support protobuf. list adds to into concurrently, and into contains a part of the
// objects after an error.
func list[T any, P object[T]](
	ctx context.Context, client rest.Interface, resource, namespace string, options metav1.ListOptions, into cache.Store,
) error {
	// Version 0 is the state in the API server's cache, which may be slightly old.
	options.ResourceVersion = "0"
	body, err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := &decoder[T, P]{masks: masksOf(resource), common: map[string]*T{}}
	buffers := sync.Pool{New: func() any { return &batch{} }}
	var group errgroup.Group
	group.SetLimit(decoders)
	decode := func(b *batch) {
		group.Go(func() error {
			defer buffers.Put(b)
			objects := make([]T, len(b.ends))
			start := 0
			for i, end := range b.ends {
				var err error
				if b.scratch, err = decoder.decode(&objects[i], b.bytes[start:end], b.scratch); err != nil {
					return err
				}
				if err := into.Add(P(&objects[i])); err != nil {
					return err
				}
				start = end
			}
			return nil
		})
	}
	next := buffers.Get().(*batch)
	next.reset()
	err = eachItem(body, func(r io.Reader, size int) error {
		if err := next.add(r, size); err != nil {
			return err
		}
		if len(next.bytes) >= batchSize {
			decode(next)
			next = buffers.Get().(*batch)
			next.reset()
		}
		return nil
	})
	decode(next)
	if err := errors.Join(err, group.Wait()); err != nil {
		return fmt.Errorf("list of %s: %w", resource, err)
	}
	return nil
}

// decoder decodes the objects of a resource. It is safe for concurrent use.
type decoder[T any, P object[T]] struct {
	masks masks

	mu     sync.Mutex
	common map[string]*T // the shared parts of objects, by their encoding
}

// decode decodes an object. It overwrites scratch, and returns it for the next call.
func (d *decoder[T, P]) decode(into *T, message, scratch []byte) ([]byte, error) {
	if d.masks.common != nil {
		var err error
		if scratch, err = d.masks.common.appendTo(scratch[:0], message); err != nil {
			return nil, err
		}
		common, err := d.commonOf(scratch)
		if err != nil {
			return nil, err
		}
		*into = *common // safe to share, because listed objects are never changed
	}
	scratch, err := d.masks.own.appendTo(scratch[:0], message)
	if err != nil {
		return nil, err
	}
	return scratch, P(into).Unmarshal(scratch) // does not change fields that are not in scratch
}

// commonOf returns the shared object with this encoding.
func (d *decoder[T, P]) commonOf(encoded []byte) (*T, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if common := d.common[string(encoded)]; common != nil {
		return common, nil
	}
	common := new(T)
	d.common[string(encoded)] = common
	return common, P(common).Unmarshal(encoded)
}

// batch is a sequence of encoded objects.
type batch struct {
	bytes   []byte
	ends    []int
	scratch []byte // scratch
}

func (b *batch) reset() { b.bytes, b.ends = b.bytes[:0], b.ends[:0] }

func (b *batch) add(r io.Reader, size int) error {
	start := len(b.bytes)
	b.bytes = slices.Grow(b.bytes, size)[:start+size]
	b.ends = append(b.ends, start+size)
	_, err := io.ReadFull(r, b.bytes[start:])
	return err
}

// magic is the prefix of all protobuf encodings of the API. A runtime.Unknown follows, whose field
// raw is the object.
var magic = []byte("k8s\x00")

// Constants of the encoding: the numbers of the fields raw of runtime.Unknown and items of every
// list, and the types of fields.
const (
	rawField   = 2
	itemsField = 2
	bytesType  = 2
	varintType = 0
	// maxBytes is larger than any object: etcd accepts 1.5 MiB.
	maxBytes = 1 << 28
)

// eachItem calls each with every item of an encoded list. each must read size bytes from the
// reader.
func eachItem(body io.Reader, each func(r io.Reader, size int) error) error {
	r := bufio.NewReaderSize(body, 64<<10)
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(r, start); err != nil || !bytes.Equal(start, magic) {
		return errors.Join(err, errors.New("expected protobuf"))
	}
	// The list is one field of the envelope. Its length does not matter, because the fields after
	// it are empty.
	inList := false
	for {
		tag, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		length, err := binary.ReadUvarint(r) // the length, or the value of a number
		if err != nil {
			return unexpectedEOF(err)
		}
		number, kind := tag>>3, tag&7
		switch {
		case kind == varintType:
		case kind != bytesType:
			return fmt.Errorf("field %d has type %d, expected bytes", number, kind)
		case !inList && number == rawField:
			inList = true
		case length > maxBytes:
			return fmt.Errorf("field %d has %d bytes, expected at most %d", number, length, maxBytes)
		case inList && number == itemsField:
			err = each(r, int(length))
		default:
			_, err = r.Discard(int(length))
		}
		if err != nil {
			return unexpectedEOF(err)
		}
	}
}

// unexpectedEOF converts the end of a body inside a message into io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
