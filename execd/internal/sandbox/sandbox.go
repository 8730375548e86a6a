// Package sandbox makes and removes the directories of their own in which runs work,
// and has what is needed brought into them and what they leave brought out. What touches
// files of users does so with their rights, in package worker. The records of jobs say
// which run has which sandbox, and the directory is the only other trace. Only daemon uses
// it; it imports job, launch, conf, asuser and the packages below it.
package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/worker"
	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/spool"
)

// Manager has the sandboxes of a host. The exported fields are set before first use.
type Manager struct {
	Host       string
	Boot       string
	Root       *spool.Root
	Privileged bool // sandboxes belong to the owners of the jobs
	Config     func() *conf.Config
	Store      *job.Store
	Owner      func(*job.Task) (*user.User, error)
	AsUser     *asuser.Starter
	Worker     *worker.Runner
	Throttle   *Throttle
	Service    func(context.Context) (*user.User, error) // as whom plugins are asked what they can
	Aside      func(do func())                           // as that of launch.Runs
	Later      func(after time.Duration, do func())
	Projects   Projects // those of TMPDIR, too
	Log        *slog.Logger
	Changed    func() // is told when the size of what leaves is another one, or some has left
	// Of runs whose files another host pushes and pulls: how long output is kept when its claim
	// is gone; whether that is so, by its public id; and who has a run go on that is not stuck
	// any more.
	Lease   func() time.Duration
	Claimed func(public string) bool
	Wake    func(*job.Task)

	made    atomic.Uint64 // sandboxes of this execd
	plugins atomic.Pointer[plugins]
	out     outbox
	gates   gates

	mu     sync.Mutex
	places map[string]bool   // guarded by mu; directories that were found to be ours
	left   map[string]*left  // guarded by mu; by path
	held   map[string]uint32 // guarded by mu; projects, by path
	spares []spare           // guarded by mu; the oldest first
}

// The knobs of hooks.conf.
const (
	knobExecute   = "EXECUTE"
	knobMaxInput  = "MAX_TRANSFER_INPUT_MB"
	knobMaxOutput = "MAX_TRANSFER_OUTPUT_MB"
	knobMaxItems  = "MAX_TRANSFER_ITEMS"
)

// maxItems is how many items come from another host, unless the site says otherwise: it costs that
// nothing to make some, and each takes an inode here.
const maxItems = 10_000_000

// Place returns the directory in which new sandboxes are made.
func (m *Manager) Place() string {
	if dir, _ := m.Config().Knobs.Lookup(knobExecute); dir != "" {
		return filepath.Clean(dir)
	}
	return m.Root.Path(spool.DirSandboxes)
}

// Plan gives a run that asks for it a sandbox, which is not made yet, and in which it may
// have so many bytes; 0: any number. It is recorded with the start of the run. Slot is its
// first one, by its number in the queue.
func (m *Manager) Plan(t *job.Task, r *api.SubmitRequest, slot int, limit uint64) error {
	if r.Sandbox != api.SandboxYes {
		return nil
	}
	place := m.Place()
	if err := m.check(place); err != nil {
		return err
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails (crypto/rand)
	now := time.Now()
	word := hex.EncodeToString(random)
	claim := strings.TrimSuffix(t.Start.Claim, "...")
	if claim == "" { // the queue's own slot has none
		claim = fmt.Sprintf("<%s>#%s#%v#", m.Host, m.Boot, t.RunID())
	}
	s := &job.Sandbox{
		ID:      fmt.Sprintf("%ss%x#%x%s", claim, m.made.Add(1), now.Unix(), word),
		Dir:     filepath.Join(place, t.RunID().String()+"-"+word[:idDigits]),
		Created: now, Slot: slot,
	}
	if k := t.Kept; k != nil && t.Start.Remote == nil {
		if _, err := os.Lstat(k.Files()); err == nil {
			s.Dir, s.Created, s.Kept, s.Project, s.Limit = k.Dir, k.Created, true, k.Project, k.Limit
		} else { // a file system in memory is empty after the host was restarted
			m.Log.Warn(fmt.Sprintf("job %v: its sandbox is lost, and it begins with a new one: %v", t, err))
		}
	}
	if !s.Kept {
		m.limit(s, limit)
	}
	m.Store.Box(t, s)
	if carriage(t) != nil {
		m.gate(t)
	}
	return nil
}

// Keeps reports whether the next run goes on in the sandbox of this one when the job has
// to leave its slot.
func (m *Manager) Keeps(t *job.Task) bool {
	r, err := m.Store.Request(t.Job)
	return err == nil && (r.WhenOut == api.OutEvict || r.WhenOut == api.OutAlways)
}

// idDigits are the hexadecimal digits at the end of the name of a sandbox.
const idDigits = 16

// parse returns the run and the digits that the name of a sandbox has.
func parse(name string) (run spool.RunID, id string, ok bool) {
	text, id, ok := strings.Cut(name, "-")
	if !ok || len(id) != idDigits || strings.Trim(id, "0123456789abcdef") != "" {
		return run, "", false
	}
	run, err := spool.ParseRunID(text)
	return run, id, err == nil
}

// idOf returns the digits of a sandbox.
func idOf(s *job.Sandbox) string { return s.Dir[max(0, len(s.Dir)-idDigits):] }

// Fetch makes the sandbox of a run and has its files brought into it.
func (m *Manager) Fetch(ctx context.Context, t *job.Task, report func(order.Progress)) error {
	r, owner, err := m.about(t)
	if err != nil {
		return err
	}
	if err := m.make(t.Start.Sandbox, owner); err != nil {
		return err
	}
	if carriage(t) != nil {
		return m.receiveAll(ctx, t, r, owner, report)
	}
	if len(r.StageIn)+len(r.URLs()) == 0 || t.Start.Sandbox.Kept { // the run before may have changed what it was brought
		return nil
	}
	p := launch.PathsOf(t, r, owner, m.Host)
	o := m.orders(t, owner, p, knobMaxInput)
	for i := range r.StageIn {
		s := &r.StageIn[i]
		o.Bring = append(o.Bring, order.Named{From: placeOf(p, string(s.Place)), To: filepath.Clean(s.InSandbox())})
	}
	if err := m.addPlugins(ctx, o, t, r, owner, true); err != nil || len(o.Bring) == 0 {
		return err
	}
	return m.carry(ctx, &m.Throttle.down, owner, t, o, report)
}

// about returns what a transfer is made from.
func (m *Manager) about(t *job.Task) (*api.SubmitRequest, *user.User, error) {
	r, err := m.Store.Request(t.Job)
	if err != nil {
		return nil, nil, err
	}
	owner, err := m.Owner(t)
	return r, owner, err
}

func (m *Manager) orders(t *job.Task, owner *user.User, p launch.Paths, limit string) *order.Orders {
	return &order.Orders{
		ID: idOf(t.Start.Sandbox), Base: p.Dir, Root: owner.UID == 0,
		Max: int64(m.Config().Knobs.Int(limit, 0)) << 20, Items: int64(m.Config().Knobs.Int(knobMaxItems, maxItems)),
	}
}

// placeOf returns a path of the user's, or a URL of his for a plugin.
func placeOf(p launch.Paths, text string) string {
	place := p.Expand(text)
	if path, plain := api.PlainPlace(place); plain {
		return path
	}
	return place
}

// Has reports whether a run has a sandbox, which is to be made and filled.
func (m *Manager) Has(t *job.Task) bool { return t.Start.Sandbox != nil }

// Leaves returns after which ends of its job the output of a run that is over is brought
// out of its sandbox, whether there is any, and whether it has written to standard streams
// that another host is to pull.
func (m *Manager) Leaves(t *job.Task) (when api.WhenOut, files, streams bool) {
	if t.Start.Sandbox == nil {
		return "", false, false
	}
	box, err := openDir(t.Start.Sandbox.Dir)
	if err == nil {
		defer box.Close()
		streams = carriage(t) != nil && hasStreams(box)
	}
	r, err2 := m.Store.Request(t.Job)
	switch {
	case err2 != nil: // Send will meet it again, and then it is tried again
		m.Log.Warn(fmt.Sprintf("job %v: output: %v", t, err2))
		return api.OutAlways, true, streams
	case len(r.StageOut) == 1 && r.StageOut[0].Name == api.StageNone:
		return "", false, streams
	case streams || selects(r) == order.Listed || err != nil:
		return r.WhenOut, true, streams
	}
	// Most jobs of a large array may leave nothing, and end as those without a sandbox.
	if empty, err := isEmpty(box); empty && err == nil {
		return "", false, false
	}
	return r.WhenOut, true, false
}

// muchDirty is how many bytes that are not on disk yet a sync may write at once: others
// who have something small recorded on that disk wait for it.
const muchDirty = 64 << 20

// dirty returns how many bytes of files are not on disk yet, of all of the host.
func dirty() int64 {
	b, _ := os.ReadFile("/proc/meminfo")
	_, b, _ = bytes.Cut(b, []byte("\nDirty:"))
	return int64(proc.Number(bytes.TrimLeft(b, " "))) << 10
}

// Sync returns when what a run has left in its sandbox is on disk.
func (m *Manager) Sync(ctx context.Context, t *job.Task) error {
	if dirty() > muchDirty {
		if err := m.flush(ctx, t); err != nil && ctx.Err() == nil {
			m.Log.Warn(fmt.Sprintf("job %v: output: cannot write it to the disk in pieces: %v", t, err))
		}
	}
	dir, err := openPlace(filepath.Dir(t.Start.Sandbox.Dir))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir.Name(), err)
	}
	return nil
}

// flush has a worker write to the disk what a run has left in its sandbox.
func (m *Manager) flush(ctx context.Context, t *job.Task) error {
	r, owner, err := m.about(t)
	if err != nil {
		return err
	}
	o := m.orders(t, owner, launch.PathsOf(t, r, owner, m.Host), knobMaxOutput)
	o.Flush = true
	_, err = m.inTurn(ctx, &m.Throttle.brief, owner, t, o, nil, func(order.Progress) {})
	return err
}

// Discard removes what of the output of a run lies where it was to arrive and is not
// whole, since nobody wants it any more.
func (m *Manager) Discard(ctx context.Context, t *job.Task) error {
	if carriage(t) != nil {
		return nil // that is the other host's to do
	}
	o, owner, err := m.output(ctx, t)
	if err != nil {
		return err
	}
	o.Discard = true
	_, err = m.inTurn(ctx, &m.Throttle.brief, owner, t, o, nil, func(order.Progress) {})
	return err
}

// Send has the output of a run brought out of its sandbox.
func (m *Manager) Send(ctx context.Context, t *job.Task, report func(order.Progress)) error {
	if carriage(t) != nil {
		return m.deliver(ctx, t, report)
	}
	o, owner, err := m.output(ctx, t)
	if err != nil {
		return err
	}
	return m.carry(ctx, &m.Throttle.up, owner, t, o, func(p order.Progress) {
		m.measured(t, p)
		report(p)
	})
}

// output returns the orders for the output of a run.
func (m *Manager) output(ctx context.Context, t *job.Task) (*order.Orders, *user.User, error) {
	r, owner, err := m.about(t)
	if err != nil {
		return nil, nil, err
	}
	p := launch.PathsOf(t, r, owner, m.Host)
	o := m.orders(t, owner, p, knobMaxOutput)
	if carriage(t) != nil {
		o.Send = carries(t, r)
		return o, owner, nil
	}
	o.Send = sends(r, owner, p)
	return o, owner, m.addPlugins(ctx, o, t, r, owner, false)
}

// carries returns what another host is to pull.
func carries(t *job.Task, r *api.SubmitRequest) *order.Send {
	s := &order.Send{Select: selects(r)}
	switch t.End.Carries {
	case job.CarriesStreams:
		s.Select = order.Listed
		return s
	case job.CarriesAll:
		s.Select = order.All
		return s
	}
	for i := range r.StageOut {
		if out := &r.StageOut[i]; out.Name != api.StageAll && out.Name != api.StageFiles {
			s.Names = append(s.Names, order.Named{From: filepath.Clean(string(out.Name))})
		}
	}
	return s
}

// hasStreams reports whether something was written to the standard streams of a run, in its
// sandbox.
func hasStreams(box *os.File) (has bool) {
	eachStream(box, func(_ int, _ string, st *unix.Stat_t) { has = has || st.Size > 0 })
	return has
}

// eachStream looks at the files of standard streams that are in a sandbox. They are their
// owner's, as is their directory, and may be anything.
func eachStream(box *os.File, do func(say int, name string, st *unix.Stat_t)) {
	say, err := openAt(box, order.DirSay)
	if err != nil {
		return
	}
	defer say.Close()
	at := int(say.Fd())
	for _, name := range []string{order.FileStdout, order.FileStderr} {
		var st unix.Stat_t
		if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			do(at, name, &st)
		}
	}
}

// selects returns which of what a run has left is sent beside what is named.
func selects(r *api.SubmitRequest) order.Select {
	s := order.Listed
	for i := range r.StageOut {
		switch r.StageOut[i].Name {
		case api.StageAll:
			s = order.All
		case api.StageFiles:
			s = order.Changed
		}
	}
	if len(r.StageOut) == 0 {
		s = order.All
	}
	return s
}

// sends returns what is to be sent, and to where.
func sends(r *api.SubmitRequest, owner *user.User, p launch.Paths) *order.Send {
	place := func(text string) string { return placeOf(p, text) }
	s := &order.Send{Select: selects(r), To: p.Dir, Home: owner.Home}
	if r.StageOutTo != "" {
		s.To = below(p.Dir, place(r.StageOutTo))
	}
	for i := range r.StageOut {
		switch out := &r.StageOut[i]; {
		case out.Name == api.StageAll, out.Name == api.StageFiles:
		case out.Place != "":
			s.Names = append(s.Names, order.Named{From: filepath.Clean(string(out.Name)), To: below(s.To, place(string(out.Place)))})
		case s.Select == order.Listed: // else it is sent with the rest
			s.Names = append(s.Names, order.Named{From: filepath.Clean(string(out.Name))})
		}
	}
	return s
}

// below returns a path in a directory, unless it is absolute. A slash at its end says
// that it is a directory's, and stays. URLs are left to the worker.
func below(dir, path string) string {
	if !strings.HasPrefix(path, "/") && order.Scheme(path) == "" && order.Scheme(dir) == "" {
		slash := ""
		if strings.HasSuffix(path, "/") {
			slash = "/"
		}
		path = filepath.Join(dir, path) + slash
	}
	return path
}
