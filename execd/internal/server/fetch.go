package server

import (
	"context"
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
)

// fetch answers execd -fetch and execd -renew.
func (s *Server) fetch(_ context.Context, _ job.Caller, req *api.FetchRequest) (api.FetchReply, error) {
	if len(req.Slots) > api.MaxWords {
		return api.FetchReply{}, api.Errorf(api.CodeRejected, "%d slots are too many, at most %d are possible", len(req.Slots), api.MaxWords)
	}
	ids, err := slotIDs(req.Slots)
	if err != nil {
		return api.FetchReply{}, err
	}
	ask, none := s.Fetch, "no work is fetched for slot"
	if req.Renew {
		ask, none = s.Renew, "no work is renewed in slot"
	}
	n, missing := ask(ids)
	if len(missing) > 0 {
		words := strings.Trim(fmt.Sprint(missing), "[]")
		return api.FetchReply{}, api.Errorf(api.CodeNotFound, "%s %s", none, strings.ReplaceAll(words, " ", ", "))
	}
	return api.FetchReply{Slots: n}, nil
}
