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

// batchSize is how many bytes of objects, about, are decoded at a time.
const batchSize = 1 << 20

// decoders is how many batches of one resource are decoded at a time.
const decoders = 2

// object is a pointer to an object of the API that can decode itself.
type object[T any] interface {
	*T
	metav1.Object
	Unmarshal(data []byte) error
}

// list stores all objects of a resource, without what nobody reads here and is big. They are decoded and stored as they come: with a typed
// client the API server and this program would wait for each other, and hold the list three times. Pages are no way out: all but the first are
// read from etcd, which costs the API server three times as much as what it has in memory. The server must speak protobuf.
// into is added to concurrently, and holds a part after an error.
func list[T any, P object[T]](
	ctx context.Context, client rest.Interface, resource, namespace string, options metav1.ListOptions, into cache.Store,
) error {
	// Version 0 is what the API server has in memory. That may be a moment old.
	options.ResourceVersion = "0"
	body, err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	decoder := &decoder[T, P]{parts: partsOf(resource), common: map[string]*T{}}
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
				if b.kept, err = decoder.decode(&objects[i], b.bytes[start:end], b.kept); err != nil {
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
	parts parts

	mu     sync.Mutex
	common map[string]*T // what objects have in common, by its encoding
}

// decode decodes an object. scratch is overwritten, and returned for the next.
func (d *decoder[T, P]) decode(into *T, message, scratch []byte) ([]byte, error) {
	if d.parts.common != nil {
		var err error
		if scratch, err = d.parts.common.appendTo(scratch[:0], message); err != nil {
			return nil, err
		}
		common, err := d.commonOf(scratch)
		if err != nil {
			return nil, err
		}
		*into = *common // they share what it points to: nobody changes what was listed
	}
	scratch, err := d.parts.own.appendTo(scratch[:0], message)
	if err != nil {
		return nil, err
	}
	return scratch, P(into).Unmarshal(scratch) // which leaves alone what is not in it
}

// commonOf returns the one object with what is encoded so.
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

// batch is some encoded objects, one after the other.
type batch struct {
	bytes []byte
	ends  []int
	kept  []byte // scratch
}

func (b *batch) reset() { b.bytes, b.ends = b.bytes[:0], b.ends[:0] }

func (b *batch) add(r io.Reader, size int) error {
	start := len(b.bytes)
	b.bytes = slices.Grow(b.bytes, size)[:start+size]
	b.ends = append(b.ends, start+size)
	_, err := io.ReadFull(r, b.bytes[start:])
	return err
}

// magic is what everything of the API begins with that is encoded as protobuf; a runtime.Unknown follows, whose raw is the object.
var magic = []byte("k8s\x00")

// What there is in the encoding of fields: their numbers, of raw in runtime.Unknown and of items in every list, and the one type that both have.
const (
	rawField   = 2
	itemsField = 2
	bytesType  = 2
	varintType = 0
	// mostBytes is more than any object has: etcd takes 1.5 MiB.
	mostBytes = 1 << 28
)

// eachItem calls each with every item of an encoded list, as it is; each must read its size from the reader.
func eachItem(body io.Reader, each func(r io.Reader, size int) error) error {
	r := bufio.NewReaderSize(body, 64<<10)
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(r, start); err != nil || !bytes.Equal(start, magic) {
		return errors.Join(err, errors.New("expected protobuf"))
	}
	// The list is one field of the envelope, and its length is of no interest: what follows it in the envelope is empty.
	inList := false
	for {
		tag, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		length, err := binary.ReadUvarint(r) // or the value itself, of a number
		if err != nil {
			return unexpected(err)
		}
		number, kind := tag>>3, tag&7
		switch {
		case kind == varintType:
		case kind != bytesType:
			return fmt.Errorf("field %d has type %d, expected bytes", number, kind)
		case !inList && number == rawField:
			inList = true
		case length > mostBytes:
			return fmt.Errorf("field %d has %d bytes, expected at most %d", number, length, mostBytes)
		case inList && number == itemsField:
			err = each(r, int(length))
		default:
			_, err = r.Discard(int(length))
		}
		if err != nil {
			return unexpected(err)
		}
	}
}

// unexpected makes the end of a body in the middle of something an error that says so.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
