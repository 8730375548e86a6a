package server

import (
	"context"
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
)

// fetch answers execd -fetch.
func (s *Server) fetch(_ context.Context, _ job.Caller, req *api.FetchRequest) (api.FetchReply, error) {
	if len(req.Slots) > api.MaxWords {
		return api.FetchReply{}, api.Errorf(api.CodeRejected, "%d slots are too many, at most %d are possible", len(req.Slots), api.MaxWords)
	}
	ids, err := slotIDs(req.Slots)
	if err != nil {
		return api.FetchReply{}, err
	}
	n, missing := s.Fetch(ids)
	if len(missing) > 0 {
		words := strings.Trim(fmt.Sprint(missing), "[]")
		return api.FetchReply{}, api.Errorf(api.CodeNotFound, "no work is fetched for slot %s", strings.ReplaceAll(words, " ", ", "))
	}
	return api.FetchReply{Slots: n}, nil
}

// CheckWork refuses fetched work that could not be submitted, and brings the request
// into the form in which it is stored.
func (s *Server) CheckWork(owner *user.User, req *api.SubmitRequest) error {
	config := s.Config()
	c := job.Caller{Name: owner.Name, UID: owner.UID, GID: owner.GID}
	if err := s.mayBeJob(config, c, owner, owner.GID, req); err != nil {
		return err
	}
	if _, _, err := s.verify(req, owner); err != nil {
		return err
	}
	req.Hard, req.Soft = schedule.Spell(config, req.Hard), schedule.Spell(config, req.Soft)
	return nil
}
