package snapshot

// Forget makes the reader read every pod again.
func (r *Reader) Forget() { r.podCache = podCache{} }

// BreakNodes makes every read of a node panic.
func (r *Reader) BreakNodes() { r.reader = nil }
