package cluster

// Forget lets the reader read every pod again.
func (r *Reader) Forget() { r.known = known{} }
