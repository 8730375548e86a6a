package server

import (
	"context"
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
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
