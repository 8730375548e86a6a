package job

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unique"

	"paddock/execd/api"
)

// Needs is what a request asks of host and queues, without the rest of it:
// equal for all jobs that ask for the same, and kept once for all of them.
type Needs struct{ text unique.Handle[string] }

// needsOf returns the needs of a request.
func needsOf(r *api.SubmitRequest) Needs {
	b, err := json.Marshal(&api.SubmitRequest{
		Hard: r.Hard, Soft: r.Soft, Queues: r.Queues, SoftQueues: r.SoftQueues, MasterQueues: r.MasterQueues,
		PE: r.PE, Slots: r.Slots, Reserve: r.Reserve, Checkpoint: r.Checkpoint, Binding: r.Binding,
	})
	if err != nil {
		panic("a request cannot be encoded: " + err.Error()) // it has come as JSON
	}
	return Needs{unique.Make(string(b))}
}

// Request returns a request that asks for the needs and nothing else.
func (n Needs) Request() *api.SubmitRequest {
	r := &api.SubmitRequest{}
	if err := json.Unmarshal([]byte(n.text.Value()), r); err != nil {
		panic("needs cannot be decoded: " + err.Error()) // needsOf wrote them
	}
	return r
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
