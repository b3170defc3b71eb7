package extender

import (
	"bytes"
	"sync"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// buffers has the memory that a request needs. Requests reuse it, because every request would
// otherwise allocate hundreds of kilobytes, and the garbage collections would delay answers.
type buffers struct {
	body       []byte
	candidates []*nodeState
	names      []string
	priorities extenderv1.HostPriorityList
	answer     bytes.Buffer
}

// maxReusedBytes is the maximum size of a body or answer whose memory is reused. Few requests are
// larger, and their memory would be unused most of the time.
const maxReusedBytes = 1 << 20

var unusedBuffers = sync.Pool{New: func() any {
	return &buffers{names: []string{}, priorities: extenderv1.HostPriorityList{}} // the JSON of nil is null
}}

// acquireBuffers returns buffers that no other request uses until they are released.
func acquireBuffers() *buffers { return unusedBuffers.Get().(*buffers) }

// release makes the buffers available to other requests.
func (b *buffers) release() {
	if cap(b.body) > maxReusedBytes || b.answer.Cap() > maxReusedBytes {
		return
	}
	b.answer.Reset()
	// Otherwise deleted nodes would remain in memory.
	clear(b.candidates[:cap(b.candidates)])
	clear(b.names[:cap(b.names)])
	clear(b.priorities[:cap(b.priorities)])
	unusedBuffers.Put(b)
}
