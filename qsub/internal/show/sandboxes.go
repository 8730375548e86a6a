package show

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// showSandboxes prints the sandboxes of the host, for qhost -sandboxes.
func showSandboxes(ctx context.Context, inv *command.Invocation, asJSON, asXML bool) error {
	var reply api.SandboxesReply
	if err := inv.Client.Call(ctx, api.VerbBoxes, &api.SandboxesRequest{}, &reply); err != nil {
		return inv.CallFailed(err)
	}
	if asJSON {
		return inv.PrintJSON(&reply)
	}
	titles := []string{"JOB", "USER", "SLOT", "STATE", "SIZE", "SENT", "RATE", "PEER", "TRIES", "LAST-ERROR"}
	rows := [][]string{titles}
	for i := range reply.Sandboxes {
		rows = append(rows, sandboxCells(&reply.Sandboxes[i], time.Now()))
	}
	if asXML {
		return xmlSandboxes(inv, &reply, rows)
	}
	output.Table(inv.Out, rows, "SIZE", "SENT", "RATE", "TRIES")
	return nil
}

// sandboxCells returns the cells of the line of a sandbox. One that no job has is named by
// its directory.
func sandboxCells(s *api.SandboxStatus, now time.Time) []string {
	size, sent, rate, peer, tries := "", "", "", "", ""
	if s.Size > 0 {
		size = megabytes(float64(s.Size))
	}
	if t := s.Transfer; t != nil {
		sent, peer = megabytes(float64(t.Bytes)), cmp.Or(t.Peer, "local")
		if took := now.Sub(t.Since).Seconds(); !t.Since.IsZero() && took >= 1 {
			rate = megabytes(float64(t.Bytes-t.Before)/took) + "/s"
		}
	}
	if s.Tries > 0 {
		tries = strconv.Itoa(s.Tries)
	}
	cells := []string{cmp.Or(s.Job, filepath.Base(s.Dir)), s.User, string(s.Slot), string(s.State), size, sent, rate, peer, tries, s.Error}
	for i, c := range cells {
		cells[i] = cmp.Or(c, "-")
	}
	return cells
}

// xmlSandboxes prints them as XML, with numbers as they are.
func xmlSandboxes(inv *command.Invocation, reply *api.SandboxesReply, rows [][]string) error {
	x := document{output.NewXML(inv.Out, '\'', "qhost", "qhost/qhost.xsd")}
	for i := range reply.Sandboxes {
		s := &reply.Sandboxes[i]
		x.Open("sandbox")
		x.Text("dir", s.Dir)
		for k, name := range []string{"job", "user", "slot", "state"} {
			x.Text(name, rows[i+1][k])
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
	x.End()
	return nil
}
