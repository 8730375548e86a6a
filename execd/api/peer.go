package api

import (
	"context"
	"time"
)

// Verbs between hosts of a pool, see paddock-pool(7). Of the others a host may use those
// of claims, and VerbSlots.
const (
	VerbHello    = "hello"     // HelloRequest -> HelloReply
	VerbRenewAll = "renew-all" // RenewAllRequest -> RenewAllReply
	VerbPeers    = "peers"     // PeersRequest -> PeersReply; of this host's own users
)

// CodeAway says that another host, which was to be asked, could not be reached.
const CodeAway Code = "away"

// HelloRequest asks a host what it is.
type HelloRequest struct{}

// HelloReply says what a host is.
type HelloReply struct {
	Host    string `json:"host"` // as it calls itself
	Version string `json:"version"`
	Arch    string `json:"arch,omitempty"`
}

// RenewAllRequest renews the leases of several claims, as VerbRenew does of one, and of
// sandboxes that are detached.
type RenewAllRequest struct {
	IDs       []ClaimID      `json:"ids"`                 // at most MaxWords, with the sandboxes
	Sandboxes []SandboxOrder `json:"sandboxes,omitempty"` // of the execd that asks for itself
}

// RenewAllReply says of each how it stands, in the order of the request.
type RenewAllReply struct {
	Claims    []Renewed        `json:"claims"`
	Sandboxes []RenewedSandbox `json:"sandboxes,omitempty"`
}

// Renewed is the state of a claim, or why it could not be renewed.
type Renewed struct {
	ClaimState
	Error *Error `json:"error,omitempty"`
}

// PeersRequest asks which hosts this one may have work run on.
type PeersRequest struct{}

// PeersReply has this host in its pool, and the others by name.
type PeersReply struct {
	Self  *Member      `json:"self,omitempty"` // nil: it is in no pool
	Peers []PeerStatus `json:"peers"`
}

// Member is this host in its pool.
type Member struct {
	Name  string    `json:"name"`
	Roles string    `json:"roles"` // submit, execute or submit,execute
	Until time.Time `json:"until"` // of its certificate
}

// PeerStatus is how another host stands.
type PeerStatus struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	State   PeerState `json:"state"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error,omitempty"` // why it is down
	Version string    `json:"version,omitempty"`
	Arch    string    `json:"arch,omitempty"`
	Until   time.Time `json:"until,omitzero"` // of its certificate
	Zstd    bool      `json:"zstd,omitempty"` // what travels to it and from it is compressed
	Slots   int       `json:"slots"`
	Free    int       `json:"free"` // slots that are idle and nobody's, or the queue's
	// Draining says that the host starts nothing.
	Draining bool `json:"draining,omitempty"`
	Revision int  `json:"-"` // SlotsReply.Revision
	// Queues are its queues as of its last answer, those of a host that is down as well; nil:
	// it has never answered.
	Queues []QueueStatus `json:"queues,omitempty"`
}

// PeerState says whether a host answers.
type PeerState string

// The states of a host.
const (
	PeerUnknown PeerState = "unknown" // it is being asked for the first time
	PeerUp      PeerState = "up"
	PeerDown    PeerState = "down"
)

// RenewAll renews the leases of claims, and of sandboxes that are detached.
func (c *Client) RenewAll(ctx context.Context, r RenewAllRequest) (reply RenewAllReply, err error) {
	err = c.Call(ctx, VerbRenewAll, &r, &reply)
	return reply, err
}
