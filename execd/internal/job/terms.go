package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"paddock/execd/api"
)

// Terms are what of a job's request is at hand and may be altered. They are
// replaced as a whole, and to be read only.
type Terms struct {
	Name     string    `json:"-"`
	Account  string    `json:"-"`
	MaxRun   int       `json:"max_run"` // tasks at the same time; 0: no limit
	Rerun    api.Rerun `json:"rerun"`
	Priority int       `json:"priority"` // -p
	After    time.Time `json:"after"`    // -a
	Mail     string    `json:"mail"`     // -m: letters of b, e, a, s
	Needs    Needs     `json:"-"`
	Slots    int       `json:"-"` // of -pe: the fewest; 1 for a serial job
	Session  *Session  `json:"-"` // nil: the job is not interactive

	*Predecessors // nil: none
}

// Session is how an interactive job is connected, as api.Interactive has it.
type Session struct {
	Display string `json:"display"`
	Daemon  string `json:"daemon"`
	Client  struct {
		Address string `json:"address"`
	} `json:"client"`
}

// SessionOf returns what is kept of how a job is connected; nil: it is not interactive.
func SessionOf(i *api.Interactive) *Session {
	if i == nil {
		return nil
	}
	s := &Session{Display: i.Display, Daemon: i.Daemon}
	s.Client.Address = i.Client.Address
	return s
}

// Predecessors are the words of -hold_jid and -hold_jid_ad.
type Predecessors struct {
	Jobs  []string `json:"hold_jobs,omitempty"`
	Array []string `json:"hold_array,omitempty"`
}

// kept is what of a request is kept in memory, as api.SubmitRequest writes it.
type kept struct {
	Name    api.Text  `json:"name"`
	Account api.Text  `json:"account"`
	Binary  bool      `json:"binary"`
	Tasks   api.Tasks `json:"tasks"`
	Only    string    `json:"only"`
	Hold    string    `json:"hold"`

	Interactive *Session `json:"interactive"`
	Work        *work    `json:"work"`
	Terms                // without what it has of the others
	needs
}

// work is what is kept of api.Work: the ad may be large.
type work struct {
	Identity api.Text `json:"identity"`
	Holder   string   `json:"holder"`

	Activation *api.Activation `json:"activation,omitempty"`
}

// keptOf returns what is kept of a request.
func keptOf(r *api.SubmitRequest) *kept {
	k := &kept{
		Name: api.Text(r.Name), Account: api.Text(r.Account), Binary: r.Binary, Tasks: r.Tasks, Only: r.Only, Hold: r.Hold,
		Terms: Terms{MaxRun: r.MaxRun, Rerun: r.Rerun, Priority: r.Priority, After: r.After, Mail: r.Mail},
		needs: needsIn(r),
	}
	if len(r.HoldJobs)+len(r.HoldArray) > 0 {
		k.Predecessors = &Predecessors{r.HoldJobs, r.HoldArray}
	}
	k.Interactive = SessionOf(r.Interactive)
	if r.Work != nil {
		k.Work = &work{api.Text(r.Work.Identity), r.Work.Holder, r.Work.Activation}
	}
	return k
}

// terms returns the terms with all that they have.
func (k *kept) terms() *Terms {
	t := k.Terms
	t.Name, t.Account, t.Needs, t.Slots, t.Session = string(k.Name), string(k.Account), needsOf(&k.needs), 1, k.Interactive
	if len(k.needs.Slots) > 0 {
		t.Slots = k.needs.Slots[0].Min
	}
	return &t
}

// request returns a request that asks for the terms and nothing else.
func (t *Terms) request() *api.SubmitRequest {
	r := *t.Needs.Request()
	r.Name, r.Account, r.MaxRun, r.Rerun = t.Name, t.Account, t.MaxRun, t.Rerun
	r.Priority, r.After, r.Mail = t.Priority, t.After, t.Mail
	if s := t.Session; s != nil {
		r.Interactive = &api.Interactive{Display: s.Display, Daemon: s.Daemon, Client: api.Listener{Address: s.Client.Address}}
	}
	if p := t.Predecessors; p != nil {
		r.HoldJobs, r.HoldArray = p.Jobs, p.Array
	}
	return &r
}

// Terms returns what the job asks for at present.
func (j *Job) Terms() *Terms { return j.terms.Load() }

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
	Sandbox      string         `json:"sandbox,omitempty"`
	StageIn      urls           `json:"stage_in,omitempty"`
}

// urls are of what is brought the URLs, by their schemes alone: on these it depends which host
// can bring it.
type urls []api.Staged

func urlsIn(list []api.Staged) (of urls) {
	for i := range list {
		place := string(list[i].Place)
		if _, plain := api.PlainPlace(place); plain {
			continue
		}
		if one := (api.Staged{Place: api.Text(api.Scheme(place) + "://")}); !slices.Contains(of, one) {
			of = append(of, one)
		}
	}
	return of
}

// UnmarshalJSON reads them from what a request has.
func (u *urls) UnmarshalJSON(text []byte) error {
	var list []api.Staged
	err := json.Unmarshal(text, &list)
	*u = urlsIn(list)
	return err
}

// needsIn returns the needs of a request.
func needsIn(r *api.SubmitRequest) needs {
	return needs{
		Hard: r.Hard, Soft: r.Soft, Queues: r.Queues, SoftQueues: r.SoftQueues, MasterQueues: r.MasterQueues,
		PE: r.PE, Slots: r.Slots, Reserve: r.Reserve, Now: r.Now, Checkpoint: r.Checkpoint, Binding: r.Binding, Project: r.Project,
		Attributes: r.Attributes, Sandbox: r.Sandbox, StageIn: urlsIn(r.StageIn),
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
var requests common[Needs, *api.SubmitRequest]

// Request returns a request that asks for the needs and nothing else. It is to
// be read only.
func (n Needs) Request() *api.SubmitRequest {
	return requests.of(n, func() *api.SubmitRequest {
		r := &api.SubmitRequest{}
		if err := json.Unmarshal([]byte(n.text.Value()), r); err != nil {
			panic("needs cannot be decoded: " + err.Error()) // needsOf wrote them
		}
		return r
	})
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
