package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/quota"
)

// Projects gives out the numbers by which file systems limit what directories have; a
// *launch.Launcher does.
type Projects interface {
	TakeProject(ranges []conf.Range, dir *os.File) (uint32, error)
	GiveProject(id uint32)
}

// limit has the file system limit a sandbox that is not made yet, if it can. All who run at
// once may have a sandbox, and for days: who finds no number left goes without a limit.
func (m *Manager) limit(s *job.Sandbox, bytes uint64) {
	ranges := m.Config().Global.ScratchIDs
	if bytes == 0 || !m.Privileged || len(ranges) == 0 {
		return
	}
	place, err := openPlace(filepath.Dir(s.Dir))
	if err != nil {
		return // as who makes it says
	}
	defer place.Close()
	if quota.Available(place.Name()) != nil {
		return
	}
	id, err := m.Projects.TakeProject(ranges, place)
	if err != nil {
		m.Log.Warn(fmt.Sprintf("execd: sandbox %s is not limited: %v", s.Dir, err))
		return
	}
	if err := quota.Limit(place, id, bytes); err != nil {
		m.Projects.GiveProject(id)
		m.Log.Warn(fmt.Sprintf("execd: sandbox %s is not limited: %v", s.Dir, err))
		return
	}
	s.Project, s.Limit = id, bytes
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold(s)
}

// hold notes the project of a sandbox. m.mu is held.
func (m *Manager) hold(s *job.Sandbox) {
	if m.held == nil {
		m.held = map[string]uint32{}
	}
	if s.Project > 0 {
		m.held[s.Dir] = s.Project
	}
}

// free gives back the project of a sandbox that is gone, once. m.mu is held.
func (m *Manager) free(path string) {
	id := m.held[path]
	if id == 0 {
		return
	}
	delete(m.held, path)
	place, err := openPlace(filepath.Dir(path))
	if err == nil {
		if quota.Available(place.Name()) == nil { // it may have been mounted anew without
			err = quota.Limit(place, id, 0)
		}
		place.Close()
	}
	if err != nil {
		m.Log.Warn(fmt.Sprintf("execd: project %d: %v", id, err))
	}
	m.Projects.GiveProject(id)
}

// InProjects returns the numbers that sandboxes have.
func (m *Manager) InProjects() (ids []uint32) {
	for _, s := range m.Store.Boxes() {
		if s.Project > 0 {
			ids = append(ids, s.Project)
		}
	}
	return ids
}

// used returns how many bytes a sandbox takes, if its file system counts them.
func (m *Manager) used(s *job.Sandbox) (bytes int64, known bool) {
	if s.Project == 0 {
		return 0, false
	}
	place, err := openPlace(filepath.Dir(s.Dir))
	if err != nil {
		return 0, false
	}
	defer place.Close()
	used, err := quota.Used(place, s.Project)
	return int64(used), err == nil
}

// Size returns how many bytes a sandbox has; 0: it is not known.
func (m *Manager) Size(s *job.Sandbox) int64 {
	if used, known := m.used(s); known {
		return used
	}
	return m.out.size(s.Dir)
}

// Full says how full the sandbox of a run is, if it is so full that the job may have met
// its limit; empty: it is not.
func (m *Manager) Full(t *job.Task) string {
	s := t.Start.Sandbox
	used, known := m.used(s)
	// A large write is refused before the last block is in use.
	if !known || uint64(used) < s.Limit-s.Limit/64 {
		return ""
	}
	unit, name := float64(1<<20), "MB"
	if s.Limit >= 1<<30 {
		unit, name = 1<<30, "GB"
	}
	return fmt.Sprintf("sandbox was full: %.1f of %.1f %s", float64(used)/unit, float64(s.Limit)/unit, name)
}
