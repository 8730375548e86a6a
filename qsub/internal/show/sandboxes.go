package show

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// boxesOf are the sandboxes of hosts, as qhost -sandboxes -json prints them.
type boxesOf struct {
	Host      string      `json:"host"` // that was asked for all
	Sandboxes []boxOn     `json:"sandboxes"`
	Unreached []unreached `json:"unreached,omitempty"`
}

// boxOn is a sandbox on a host.
type boxOn struct {
	On string `json:"on"`
	api.SandboxStatus
}

// unreached is a host that could not be asked.
type unreached struct {
	Host  string `json:"host"`
	Error string `json:"error"`
}

// askedAtOnce is how many hosts are asked at the same time.
const askedAtOnce = 8

// boxes asks hosts for their sandboxes; none named: this one and all others of the pool. One that
// hangs, and is up as far as this one knows, is not waited for any longer than so long.
func boxes(ctx context.Context, inv *command.Invocation, hosts []string, patience time.Duration) (*boxesOf, error) {
	var here api.SandboxesReply
	var pool api.PeersReply
	err := inv.Client.Call(ctx, api.VerbBoxes, &api.SandboxesRequest{}, &here)
	if err == nil {
		err = inv.Client.Call(ctx, api.VerbPeers, &api.PeersRequest{}, &pool)
	}
	if err != nil {
		return nil, inv.CallFailed(err)
	}
	home, others, err := chosen(hosts, here.Host, pool.Peers)
	if err != nil {
		return nil, err
	}
	all := &boxesOf{Host: here.Host, Sandboxes: []boxOn{}}
	add := func(host string, list []api.SandboxStatus) {
		for i := range list {
			all.Sandboxes = append(all.Sandboxes, boxOn{host, list[i]})
		}
	}
	if home {
		add(here.Host, here.Sandboxes)
	}
	replies, errs := make([]api.SandboxesReply, len(others)), make([]error, len(others))
	turns := make(chan struct{}, askedAtOnce)
	var asked sync.WaitGroup
	for i := range others {
		p := &others[i]
		if p.State != api.PeerUp {
			errs[i] = fmt.Errorf("%s since %s: %s", p.State, p.Since.Local().Format(time.DateTime), cmp.Or(p.Error, "it has not answered yet"))
			continue
		}
		asked.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			limited, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			errs[i] = inv.Client.On(p.Name).Call(limited, api.VerbBoxes, &api.SandboxesRequest{}, &replies[i])
			if errs[i] != nil && limited.Err() != nil {
				errs[i] = fmt.Errorf("it has not answered for %v", patience)
			}
		})
	}
	asked.Wait()
	for i := range others {
		if errs[i] != nil {
			all.Unreached = append(all.Unreached, unreached{others[i].Name, errs[i].Error()})
		}
		add(others[i].Name, replies[i].Sandboxes)
	}
	return all, nil
}

// showSandboxes prints the sandboxes of hosts, for qhost -sandboxes.
func showSandboxes(ctx context.Context, inv *command.Invocation, hosts []string, asJSON, asXML bool) error {
	all, err := boxes(ctx, inv, hosts, askTime)
	switch {
	case err != nil:
		return err
	case asJSON:
		return inv.PrintJSON(all)
	case asXML:
		xmlSandboxes(inv, all)
		return nil
	}
	rows := [][]string{{"JOB", "HOST", "FROM", "USER", "SLOT", "STATE", "SIZE", "SENT", "RATE", "LEFT", "PEER", "TRIES", "LAST-ERROR"}}
	for i := range all.Sandboxes {
		rows = append(rows, sandboxCells(&all.Sandboxes[i], time.Now()))
	}
	for _, u := range all.Unreached {
		rows = append(rows, slices.Concat([]string{"-", u.Host}, slices.Repeat([]string{"-"}, len(rows[0])-3), []string{u.Error}))
	}
	output.Table(inv.Out, rows, "SIZE", "SENT", "RATE", "LEFT", "TRIES")
	return nil
}

// name is the job's that has a sandbox, or that of the directory if none has.
func (s *boxOn) name() string { return cmp.Or(s.Job, filepath.Base(s.Dir)) }

// sandboxCells returns the cells of the line of a sandbox.
func sandboxCells(s *boxOn, now time.Time) []string {
	size, sent, rate, left, peer, tries := "", "", "", "", "", ""
	if s.Size > 0 {
		size = megabytes(float64(s.Size))
	}
	if t := s.Transfer; t != nil {
		sent, peer = megabytes(float64(t.Bytes)), cmp.Or(t.Peer, "local")
		fast, still := speed(t, now)
		if fast > 0 {
			rate = megabytes(fast) + "/s"
		}
		if still > 0 {
			left = output.Elapsed(still)
		}
	}
	if s.Tries > 0 {
		tries = strconv.Itoa(s.Tries)
	}
	cells := []string{s.name(), s.On, s.From, s.User, string(s.Slot), string(s.State), size, sent, rate, left, peer, tries, s.Error}
	for i, c := range cells {
		cells[i] = cmp.Or(c, "-")
	}
	return cells
}

// xmlSandboxes prints them as XML, with numbers as they are.
func xmlSandboxes(inv *command.Invocation, all *boxesOf) {
	x := document{output.NewXML(inv.Out, '\'', "qhost", "qhost/qhost.xsd")}
	for i := range all.Sandboxes {
		s := &all.Sandboxes[i]
		x.Open("sandbox")
		for _, e := range [][2]string{
			{"host", s.On}, {"dir", s.Dir}, {"job", s.name()}, {"from", s.From}, {"user", s.User}, {"slot", string(s.Slot)}, {"state", string(s.State)},
		} {
			x.Text(e[0], cmp.Or(e[1], "-"))
		}
		x.Text("size", strconv.FormatInt(s.Size, 10))
		if t := s.Transfer; t != nil {
			x.Text("sent", strconv.FormatInt(t.Bytes, 10))
			if t.Peer != "" {
				x.Text("peer", t.Peer)
			}
		}
		x.Number("tries", s.Tries)
		x.Text("error", s.Error)
		x.End()
	}
	for _, u := range all.Unreached {
		x.Open("unreached")
		x.Text("host", u.Host)
		x.Text("error", u.Error)
		x.End()
	}
	x.End()
}
