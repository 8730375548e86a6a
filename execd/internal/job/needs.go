package job

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unique"

	"paddock/execd/api"
)

// Needs is what a request asks of host and queues, without the rest of it:
// equal for all jobs that ask for the same, and kept once for all of them.
type Needs struct{ text unique.Handle[string] }

// needs is the same as api.SubmitRequest writes it.
type needs struct {
	Hard         []api.Resource `json:"hard,omitempty"`
	Soft         []api.Resource `json:"soft,omitempty"`
	Queues       []string       `json:"queues,omitempty"`
	SoftQueues   []string       `json:"soft_queues,omitempty"`
	MasterQueues []string       `json:"master_queues,omitempty"`
	PE           string         `json:"pe,omitempty"`
	Slots        []api.Slots    `json:"slots,omitempty"`
	Reserve      bool           `json:"reserve,omitempty"`
	Now          bool           `json:"now,omitempty"`
	Checkpoint   string         `json:"checkpoint,omitempty"`
	Binding      string         `json:"binding,omitempty"`
	Project      string         `json:"project,omitempty"`
	Attributes   []string       `json:"attributes,omitempty"`
}

// needsIn returns the needs of a request.
func needsIn(r *api.SubmitRequest) needs {
	return needs{
		Hard: r.Hard, Soft: r.Soft, Queues: r.Queues, SoftQueues: r.SoftQueues, MasterQueues: r.MasterQueues,
		PE: r.PE, Slots: r.Slots, Reserve: r.Reserve, Now: r.Now, Checkpoint: r.Checkpoint, Binding: r.Binding, Project: r.Project,
		Attributes: r.Attributes,
	}
}

func needsOf(n *needs) Needs {
	b, err := json.Marshal(n)
	if err != nil {
		panic("a request cannot be encoded: " + err.Error()) // it has come as JSON
	}
	return Needs{unique.Make(string(b))}
}

// requests are those of Needs that were decoded: most jobs ask for what others
// have asked for.
var requests struct {
	sync.Mutex
	of map[Needs]*api.SubmitRequest
}

// maxRequests bounds them.
const maxRequests = 1000

// Request returns a request that asks for the needs and nothing else. It is to
// be read only.
func (n Needs) Request() *api.SubmitRequest {
	requests.Lock()
	defer requests.Unlock()
	if r := requests.of[n]; r != nil {
		return r
	}
	r := &api.SubmitRequest{}
	if err := json.Unmarshal([]byte(n.text.Value()), r); err != nil {
		panic("needs cannot be decoded: " + err.Error()) // needsOf wrote them
	}
	if requests.of == nil || len(requests.of) >= maxRequests {
		requests.of = map[Needs]*api.SubmitRequest{}
	}
	requests.of[n] = r
	return r
}

// Attributes returns those of -attr. It is to be read only.
func (n Needs) Attributes() []string {
	if n == (Needs{}) {
		return nil // of a task that never ran
	}
	return n.Request().Attributes
}

// Category returns the needs as options of qsub, as the accounting file has
// them; empty: none.
func (n Needs) Category() string {
	r := n.Request()
	var words []string
	add := func(option string, values []string) {
		if len(values) > 0 {
			words = append(words, option, strings.Join(values, ","))
		}
	}
	resources := func(list []api.Resource) []string {
		var texts []string
		for _, x := range list {
			texts = append(texts, x.Name+"="+x.Value)
		}
		return texts
	}
	add("-q", r.Queues)
	add("-masterq", r.MasterQueues)
	add("-l", resources(r.Hard))
	if r.PE != "" {
		words = append(words, "-pe", r.PE, rangesText(r.Slots))
	}
	add("-P", strings.Fields(r.Project))
	add("-ckpt", strings.Fields(r.Checkpoint))
	add("-soft -l", resources(r.Soft))
	add("-soft -q", r.SoftQueues)
	return strings.Join(words, " ")
}

// rangesText writes ranges of slots as -pe has them.
func rangesText(ranges []api.Slots) string {
	var texts []string
	for _, s := range ranges {
		switch {
		case s.Min == s.Max:
			texts = append(texts, strconv.Itoa(s.Min))
		case s.Step > 1:
			texts = append(texts, fmt.Sprintf("%d-%d:%d", s.Min, s.Max, s.Step))
		default:
			texts = append(texts, fmt.Sprintf("%d-%d", s.Min, s.Max))
		}
	}
	return strings.Join(texts, ",")
}
