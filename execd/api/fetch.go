package api

// VerbFetch is of the administrator: FetchRequest -> FetchReply.
const VerbFetch = "fetch"

// FetchRequest has slots ask their hooks for work at once, whatever their delay.
type FetchRequest struct {
	Slots []SlotID `json:"slots,omitempty"` // none: all that fetch work
}

// FetchReply is how many slots ask now, or will when the question they are asking
// has been answered.
type FetchReply struct {
	Slots int `json:"slots"`
}
