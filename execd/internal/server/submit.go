package server

import (
	"context"
	"errors"
	"strconv"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/admit"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
)

// submit answers qsub.
func (s *Server) submit(ctx context.Context, c job.Caller, req *api.SubmitRequest) (api.SubmitReply, error) {
	owner, lines, only, err := s.admit(ctx, c, req)
	if err != nil || only {
		return api.SubmitReply{Name: req.Name, Lines: lines}, err
	}
	config, rules := s.Config(), s.Rules()
	busy := api.Errorf(api.CodeBusy, "the job cannot start now")
	if req.Now && (s.drained() != nil || req.Hold != "" || !rules.StartsNow(req, owner) && !s.Shadows.MayStartNow(req)) {
		return api.SubmitReply{}, busy
	}
	req.Hard, req.Soft = schedule.Spell(config, req.Hard), schedule.Spell(config, req.Soft)
	warnings := rules.Warnings(config, req)
	place := s.Book.Now()
	limits := job.Limits{Jobs: config.Global.MaxJobs, UserJobs: config.Global.MaxUserJobs}
	j, waits, err := s.Store.Submit(owner, c.GID, req, limits, time.Now())
	if err != nil {
		return api.SubmitReply{}, err
	}
	if req.Now && !s.Queue.StartNow(j) && !s.Shadows.StartNow(ctx, j) {
		if _, err := s.Store.Delete(context.WithoutCancel(ctx), &api.DeleteRequest{Jobs: []string{strconv.Itoa(j.Number)}}, c, s.Stages.Kill); err != nil {
			return api.SubmitReply{}, err
		}
		return api.SubmitReply{}, busy
	}
	return api.SubmitReply{
		Job: j.Number, Name: req.Name, Tasks: j.Tasks, Only: req.Only, Lines: lines, Warnings: append(warnings, waits...),
		Cursor: account.FormatCursor(place), Program: admit.ProgramOf(&config.Global, req),
	}, nil
}

// admit refuses what must not become a job of the caller. only says that it is not to
// become one, but lines tell whether it could run.
func (s *Server) admit(ctx context.Context, c job.Caller, req *api.SubmitRequest) (owner *user.User, lines []string, only bool, err error) {
	owner, err = s.Users.ByID(ctx, c.UID)
	if errors.Is(err, user.ErrUnknown) {
		return nil, nil, false, api.Errorf(api.CodeRejected, "job rejected: user %d is not known on this host", c.UID)
	}
	if err != nil {
		return nil, nil, false, err
	}
	req.Work, req.Plain = nil, !req.Binary && admit.Interpreter(req.Script) == ""
	config, rules := s.Config(), s.Rules()
	if err := rules.Job(config, c, owner, c.GID, req); err != nil {
		return nil, nil, false, err
	}
	if err := admit.KnownHosts(ctx, config, req); err != nil {
		return nil, nil, false, err
	}
	if req.Interactive != nil {
		if err := rules.Interactive(req); err != nil {
			return nil, nil, false, err
		}
	}
	lines, only, err = rules.Verify(req, owner)
	if err != nil || only {
		return nil, lines, only, err
	}
	if err := admit.CheckCheckpoint(req); err != nil {
		return nil, nil, false, err
	}
	return owner, lines, false, nil
}

// adOf answers qsub -ad.
func (s *Server) adOf(ctx context.Context, c job.Caller, req *api.SubmitRequest) (api.AdReply, error) {
	owner, lines, only, err := s.admit(ctx, c, req)
	if err != nil || only {
		return api.AdReply{Lines: lines}, err
	}
	text, err := ad.Submitted(req, owner.Name, ad.AskedIn(s.Config(), req.Hard))
	if err != nil {
		return api.AdReply{}, api.Errorf(api.CodeRejected, "job rejected: %v", err)
	}
	return api.AdReply{Ad: api.Text(text), Tasks: req.Tasks, Only: req.Only, Lines: lines}, nil
}
