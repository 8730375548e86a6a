package eventlog

// Offset is where the next record begins: where to go on reading when more has
// been written.
func (r *Reader) Offset() int64 { return r.behind }
