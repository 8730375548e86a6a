package api

// VerbFetch is for administrators: FetchRequest -> FetchReply.
const VerbFetch = "fetch"

// FetchRequest has slots ask their hooks for work at once, whatever their delay.
type FetchRequest struct {
	Slots []SlotID `json:"slots,omitempty"` // none: all that fetch work
}

// FetchReply says how many slots ask now, or will when the hook that they are
// calling has ended.
type FetchReply struct {
	Slots int `json:"slots"`
}
