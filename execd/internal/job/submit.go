package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Limits bound how many jobs may be unfinished; 0: no bound.
type Limits struct{ Jobs, UserJobs int }

// Submit accepts a job: when it returns, the job is on disk for good. gid is the
// group of the process that submits. The warnings are about what it waits for.
func (s *Store) Submit(owner *user.User, gid int, req *api.SubmitRequest, limits Limits, now time.Time) (j *Job, warnings []string, err error) {
	h := &header{
		Format: Format, Owner: owner.Name, UID: owner.UID, Group: owner.Group, GID: owner.GID, Groups: owner.GroupNames,
		SubmitGID: gid, Submitted: now, Request: *req,
	}
	h.Request.Script = nil
	j = newJob(digestOf(h))
	j.request = &h.Request
	meant := s.meanings(req, linking, owner.UID)
	if h.links, err = s.links(j, meant); err != nil {
		return nil, nil, err
	}
	warnings = s.unmatched(meant)
	_ = j.waitFor(h.links) // what is unmet is its own
	s.mu.Lock()
	if limits.Jobs > 0 && len(s.jobs) >= limits.Jobs {
		s.mu.Unlock()
		return nil, nil, api.Errorf(api.CodeLimit, "job rejected: only %d jobs are allowed per cluster", limits.Jobs)
	}
	if limits.UserJobs > 0 && s.byUser[owner.UID] >= limits.UserJobs {
		s.mu.Unlock()
		return nil, nil, api.Errorf(api.CodeLimit, "job rejected: only %d jobs are allowed per user (current job count: %d)", limits.UserJobs, s.byUser[owner.UID])
	}
	if err := s.graph.mayWait(owner.Name, owner.UID, h.Request.Tasks, &h.links); err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	h.Job, j.Number = s.next, s.next
	s.next++
	s.byUser[owner.UID]++
	s.mu.Unlock()
	if err := s.writeNew(h, req.Script, owner); err != nil {
		s.mu.Lock()
		s.byUser[owner.UID]--
		s.mu.Unlock()
		return nil, nil, err
	}
	s.mu.Lock()
	s.jobs[j.Number] = j
	s.remember(j)
	s.graph.link(j) // what it waits for may have ended meanwhile
	gone := s.graph.endedMeanwhile(j, h.Success)
	if s.onNotice != nil && len(j.request.Attributes) > 0 {
		s.onNotice(j, j.request, Notice{Kind: NoticeSubmitted, Tasks: j.all()})
		if held := j.heldWaiting(); held.Len() > 0 {
			s.onNotice(j, j.request, Notice{NoticeHeld, held, "via qsub -h"})
		}
	}
	s.mu.Unlock()
	if err := s.outcome(j, gone); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	warnings = append(warnings, s.graph.inVain(j).texts...)
	s.mu.Unlock()
	s.hint(j)
	return j, warnings, nil
}

// maxFresh is how many new jobs keep their requests in memory until they start, so
// that those which start at once need not be read: environments may be large, and
// jobs that wait many.
const maxFresh = 32

// remember takes note of a new job whose request is in memory, and drops that of the
// oldest. s.mu is held.
func (s *Store) remember(j *Job) {
	s.fresh = append(s.fresh, j)
	if len(s.fresh) <= maxFresh {
		return
	}
	if oldest := s.fresh[0]; oldest.started == 0 {
		oldest.request = nil
	}
	s.fresh = slices.Delete(s.fresh, 0, 1)
}

// writeNew writes script and record of a new job. The rename of the record is
// the moment of acceptance: what a crash leaves before it is swept away at the
// next start.
func (s *Store) writeNew(h *header, script []byte, owner *user.User) error {
	name := strconv.Itoa(h.Job)
	head, err := encode(h)
	if err != nil {
		return err
	}
	record := s.root.Path(spool.DirJobs, name)
	fresh := s.root.Path(spool.DirJobs, ".new-"+name)
	var wg sync.WaitGroup
	var scriptErr, recordErr error
	if !h.Request.Binary {
		wg.Go(func() { scriptErr = s.writeScript(name, script, owner) })
	}
	wg.Go(func() { recordErr = s.writeSynced(fresh, head, 0o600, nil) })
	wg.Wait()
	err = errors.Join(scriptErr, recordErr)
	if err == nil {
		err = atomicfile.Rename(fresh, record)
	}
	if err == nil {
		err = s.group.SyncDir(s.root.Path(spool.DirJobs))
	}
	if err != nil {
		err = fmt.Errorf("cannot store job %d: %w", h.Job, err)
		for _, left := range []string{fresh, record, s.root.Path(spool.DirScripts, name)} {
			if rerr := atomicfile.Remove(left); rerr != nil {
				s.log.Warn(rerr.Error())
			}
		}
	}
	return err
}

// ScriptMode is the mode of a job's script, which its owner reads and executes.
const ScriptMode fs.FileMode = 0o500

// writeScript writes a job's script, which its owner alone may read (Grid
// Engine shows it to all).
func (s *Store) writeScript(name string, script []byte, owner *user.User) error {
	lend := func(f *os.File) error {
		if !s.chown {
			return nil
		}
		ours, err := Lend(f, owner.UID, owner.GID, owner.Name, owner.Group, ScriptMode)
		if err == nil && !ours {
			s.shared.Do(func() {
				s.log.Warn("scripts of users who share a group are their own, and may grow: the file system of the spool has no access control lists")
			})
		}
		return err
	}
	if err := s.writeSynced(s.root.Path(spool.DirScripts, name), script, ScriptMode, lend); err != nil {
		return err
	}
	return s.group.SyncDir(s.root.Path(spool.DirScripts))
}

// writeSynced makes a new file whose content is on disk, sharing the sync with
// all who write at the same time.
func (s *Store) writeSynced(file string, data []byte, perm fs.FileMode, lend func(*os.File) error) error {
	f, err := atomicfile.Create(file, perm)
	if err != nil {
		return err
	}
	err = atomicfile.AppendTo(f, data)
	if err == nil && lend != nil {
		err = lend(f)
	}
	if err == nil {
		err = s.group.Sync(f)
	}
	return errors.Join(err, f.Close())
}
