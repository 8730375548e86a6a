package main

import (
	"context"
	"errors"
	"fmt"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// shows are the options of qconf that print a part of the configuration.
var shows = map[string]api.ShowRequest{
	"-sc":     {Kind: "complex"},
	"-sckpt":  {Kind: "ckpt"},
	"-sckptl": {Kind: "ckpt", List: true},
	"-sconf":  {Kind: "conf"},
	"-se":     {Kind: "host"},
	"-sel":    {Kind: "host", List: true},
	"-shgrp":  {Kind: "hostgroup"},
	"-shgrpl": {Kind: "hostgroup", List: true},
	"-sm":     {Kind: "manager", List: true},
	"-so":     {Kind: "operator", List: true},
	"-sp":     {Kind: "pe"},
	"-spl":    {Kind: "pe", List: true},
	"-sq":     {Kind: "queue"},
	"-sql":    {Kind: "queue", List: true},
	"-ssconf": {Kind: "sched"},
	"-su":     {Kind: "userlist"},
	"-sul":    {Kind: "userlist", List: true},
}

// none is what Grid Engine says of an empty list.
var none = map[string]string{
	"ckpt":      "no ckpt interface definition defined",
	"hostgroup": "no host group list defined",
	"manager":   "no manager defined",
	"operator":  "no operator defined",
	"pe":        "no parallel environment defined",
	"userlist":  "no userset list defined",
}

// qconf shows the configuration that is in force, and has execd read it again.
func (s *session) qconf(ctx context.Context, args []string) error {
	settings, err := option.Mixed(option.Qconf, args)
	if err != nil {
		return err
	}
	if done, err := s.asked(settings); done {
		return err
	}
	var requests []api.ShowRequest
	var last *option.Option // that words belong to
	reload, asJSON := false, false
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option != nil:
			last = o.Option
		case last == nil || len(last.Args) == 0:
			return s.noOperand(o)
		}
		what, isShow := shows[last.Name]
		switch {
		case last.Name == "-json":
			asJSON = true
		case last.Name == "-reload":
			reload = true
		case isShow && len(o.Values) == 0:
			requests = append(requests, what)
		case isShow:
			for _, name := range list(o.Value()) {
				what.Name = name
				requests = append(requests, what)
			}
		}
	}
	if len(requests) == 0 && !reload {
		return s.noArguments()
	}
	if reload {
		if err := s.reload(ctx, asJSON); err != nil {
			return err
		}
	}
	for i := range requests {
		var reply api.ShowReply
		err := s.client.Call(ctx, api.VerbShow, &requests[i], &reply)
		if e, ok := errors.AsType[*api.Error](err); ok {
			return &failure{exitFailed, api.Visible(e.Text)}
		}
		if err != nil {
			return s.callFailed(err)
		}
		switch text, ok := none[requests[i].Kind]; {
		case asJSON:
			err = s.printJSON(&reply)
		case reply.Text == "" && requests[i].List && ok:
			return &failure{exitFailed, text}
		default:
			_, err = s.out.WriteString(reply.Text)
		}
		if err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
	}
	return nil
}

// reload has execd read its configuration again and tells what came of it.
func (s *session) reload(ctx context.Context, asJSON bool) error {
	var reply api.ReloadReply
	if err := s.client.Call(ctx, api.VerbReload, &api.ReloadRequest{}, &reply); err != nil {
		return s.callFailed(err)
	}
	if asJSON {
		if err := s.printJSON(&reply); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
	} else {
		for _, line := range reply.Changed {
			fmt.Fprintln(s.out, api.Visible(line))
		}
		for _, line := range reply.Problems {
			fmt.Fprintln(s.err, api.Visible(line))
		}
	}
	switch {
	case len(reply.Problems) > 0:
		return &failure{exitFailed, "qconf: the configuration was not changed"}
	case len(reply.Changed) == 0 && !asJSON:
		fmt.Fprintln(s.out, "the configuration has not changed")
	}
	return nil
}
