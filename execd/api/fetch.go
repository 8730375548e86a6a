package api

// VerbFetch is for administrators: FetchRequest -> FetchReply.
const VerbFetch = "fetch"

// FetchRequest has slots ask their hooks for work at once, whatever their delay, or whether
// the work that they have may go on.
type FetchRequest struct {
	Slots []SlotID `json:"slots,omitempty"` // none: all that fetch work, or have any that is renewed
	Renew bool     `json:"renew,omitempty"`
}

// FetchReply says how many slots ask now, or will when the hook that they are
// calling has ended.
type FetchReply struct {
	Slots int `json:"slots"`
}
