package show

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// showPeers prints the hosts that may run work of this one, as a table, as JSON or as XML.
func showPeers(ctx context.Context, inv *command.Invocation, hosts []string, asJSON, asXML bool) error {
	var reply api.PeersReply
	if err := inv.Client.Call(ctx, api.VerbPeers, &api.PeersRequest{}, &reply); err != nil {
		return inv.CallFailed(err)
	}
	if self := reply.Self; self != nil {
		var err error
		if _, reply.Peers, err = chosen(hosts, self.Name, reply.Peers); err != nil {
			return err
		}
	}
	switch {
	case asJSON:
		return inv.PrintJSON(&reply)
	case asXML:
		return xmlPeers(inv, &reply)
	case reply.Self == nil:
		return command.Failf("error: this host is in no pool, see paddock-pool(7)")
	}
	fmt.Fprintf(inv.Out, "%s: %s, certificate until %s\n", api.Visible(reply.Self.Name), reply.Self.Roles, day(reply.Self.Until))
	rows := [][]string{{"HOST", "ADDRESS", "STATE", "SINCE", "SLOTS", "FREE", "UNTIL", "ERROR"}}
	for i := range reply.Peers {
		p := &reply.Peers[i]
		slots, free := "-", "-"
		if p.State == api.PeerUp {
			slots, free = strconv.Itoa(p.Slots), strconv.Itoa(p.Free)
		}
		rows = append(rows, []string{
			p.Name, p.Address, string(p.State), p.Since.Local().Format("2006-01-02 15:04"), slots, free, day(p.Until), cmp.Or(p.Error, "-"),
		})
	}
	output.Table(inv.Out, rows, "SLOTS", "FREE")
	return nil
}

// day returns the day of a time.
func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateOnly)
}

// xmlPeers prints the hosts as XML.
func xmlPeers(inv *command.Invocation, reply *api.PeersReply) error {
	x := document{output.NewXML(inv.Out, '\'', "qhost", "qhost/qhost.xsd")}
	for i := range reply.Peers {
		p := &reply.Peers[i]
		x.Open("peer")
		x.Text("host", p.Name)
		x.Text("address", p.Address)
		x.Text("state", string(p.State))
		x.Text("since", p.Since.Format(time.RFC3339))
		x.Number("slots", p.Slots)
		x.Number("free", p.Free)
		x.Text("version", p.Version)
		x.Text("error", p.Error)
		x.End()
	}
	x.End()
	return nil
}
