package server

import (
	"math"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
)

// mayHurry refuses submissions that come faster than configured.
func (s *Server) mayHurry(c job.Caller) error {
	if rate := s.Config().Global.SubmitRate; rate > 0 {
		if wait := s.admission.rate.Take(c.UID, rate, time.Now()); wait > 0 {
			return api.Errorf(api.CodeLimit, "job rejected: user %s submits more than %d jobs a second; try again in %.0f s",
				c.Name, rate, math.Ceil(wait.Seconds()))
		}
	}
	return nil
}

// mayHaveJobs refuses users who may have no jobs here, in Grid Engine's words. gid is
// the group of the process that submits.
func (s *Server) mayHaveJobs(c *conf.Config, owner *user.User, gid int) error {
	g := &c.Global
	if !g.QsubGID {
		gid = owner.GID
	}
	switch {
	case s.OwnerOnly >= 0 && owner.UID != s.OwnerOnly:
		return api.Errorf(api.CodeDenied, "this execd runs jobs of its own user only")
	case s.OwnerOnly < 0 && owner.UID < g.MinUID:
		return api.Errorf(api.CodeRejected, "job rejected: your user id %d is lower than minimum user id %d of cluster configuration", owner.UID, g.MinUID)
	case s.OwnerOnly < 0 && gid < g.MinGID:
		return api.Errorf(api.CodeRejected, "job rejected: your group id %d is lower than minimum group id %d of cluster configuration", gid, g.MinGID)
	case gid != owner.GID && !slices.Contains(owner.Groups, gid):
		// A setgid program has a group that its caller is not in.
		return api.Errorf(api.CodeRejected, "job rejected: you are not in group %d, which the job would run with", gid)
	case !c.MayUse(g.UserLists, g.XUserLists, owner.Name, owner.Group):
		return api.Errorf(api.CodeRejected, "job rejected: %s@%s is not allowed to submit jobs", owner.Name, s.Host)
	}
	return nil
}

// mayHaveTasks refuses arrays that are larger than configured, in Grid Engine's
// words.
func mayHaveTasks(c *conf.Config, count int) error {
	if most := c.Global.MaxTasks; most > 0 && count > most {
		return api.Errorf(api.CodeRejected, "job rejected: you tried to submit a job with more than %d tasks", most)
	}
	return nil
}

// mayBeTold refuses addresses that no mail can be sent to.
func mayBeTold(addresses []string) error {
	if len(addresses) > api.MaxWords {
		return api.Errorf(api.CodeRejected, "job rejected: %d mail addresses are too many, at most %d are possible", len(addresses), api.MaxWords)
	}
	for _, a := range addresses {
		if err := api.CheckAddress(a); err != nil {
			return err
		}
	}
	return nil
}
