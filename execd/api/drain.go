package api

import "time"

// VerbDrain is for administrators: DrainRequest -> DrainReply.
const VerbDrain = "drain"

// DrainRequest asks execd to start no more tasks, or to start them again. With
// Wait alone it changes nothing.
type DrainRequest struct {
	On  bool `json:"on,omitempty"`
	Off bool `json:"off,omitempty"`
	// Speed, with On, ends what runs: graceful, when it has had the time that
	// the policy promises it; quick, with the time to end by itself; fast, at
	// once. Empty: what runs may finish.
	Speed string `json:"speed,omitempty"`
	// Wait keeps the reply back until nothing runs or some minutes have passed;
	// then the client asks again.
	Wait bool `json:"wait,omitempty"`
}

// DrainReply is the state of the drain.
type DrainReply struct {
	Drain   *Drain `json:"drain,omitempty"` // nil: tasks are started
	Running int    `json:"running"`         // tasks
	// Transferring is how many tasks are over and have output on its way. What waits for
	// somebody to look does not count.
	Transferring int  `json:"transferring,omitempty"`
	Changed      bool `json:"changed"` // the request has changed something
}

// Drain says since when no task is started, and who requested that.
type Drain struct {
	Since time.Time `json:"since"`
	By    string    `json:"by,omitempty"` // empty: not known
}

// String returns since when the host is drained and by whom, in words.
func (d *Drain) String() string {
	text := "drained since " + d.Since.Local().Format(time.DateTime)
	if d.By != "" {
		text += " by " + Visible(d.By)
	}
	return text
}
