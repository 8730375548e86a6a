// Package server answers the clients of execd: HTTP with JSON over a Unix socket, where
// the kernel names the user of each connection, and over TLS, where other hosts say for
// which of their users they ask. One table says who may use which verb. It
// imports the packages that have the answers (job, queue, account) and is imported by
// daemon alone.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/admit"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/drain"
	"paddock/execd/internal/fair"
	"paddock/execd/internal/follow"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/output"
	"paddock/execd/internal/peer"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/shadow"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source/program"
	"paddock/execd/internal/stage"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
)

// Server has what the handlers need. The fields are set before Serve.
type Server struct {
	Store  *job.Store
	Book   *account.Book
	Users  *user.Directory
	Config func() *conf.Config
	Hooks  func() *hook.Table // those of the configuration; nil: there are none
	Queue  *queue.Queue
	// Programs are the claims of programs.
	Programs *program.Programs
	Stages   *stage.Runner
	Reload   func() (changed []string, err error)
	// Configure changes the configuration on behalf of user@host.
	Configure func(req *api.ConfigureRequest, by string) (api.ConfigureReply, error)
	Saved     func() (*conf.Config, error)            // the configuration as it is in the files
	Template  func(kind, name string) (string, error) // what an object begins with
	Drain     *drain.Drain
	// Boxes knows the sizes of sandboxes, and those that no run has any more, and has files
	// travel into and out of those of other hosts.
	Boxes interface {
		Size(s *job.Sandbox) int64
		Left() []api.SandboxStatus
		carrier
	}
	// Fetch has slots ask for work; none named: all that fetch. It returns how many do,
	// and which of the named slots do not fetch.
	Fetch func(slots []slot.ID) (told int, missing []slot.ID)
	// Renew is Fetch for whether the work of slots may go on.
	Renew    func(slots []slot.ID) (told int, missing []slot.ID)
	Usage    *usage.Sampler
	Timeline *timeline.Timeline           // what runs did lately
	Streams  *output.Index                // nil: nothing is known of jobs that are over
	Metrics  func() []byte                // nil: there are none
	Load     func() map[string]conf.Value // of the host, as of now; nil: not known
	Groups   string                       // the tier of control groups
	Followed *follow.Activations
	// Transfers refuses URLs that no plugin takes; nil: all are taken.
	Transfers func(context.Context, *api.SubmitRequest) error
	// Peers is what hosts may do, Hosts asks those that execute, and Watch knows how they are.
	Peers *peer.Keeper
	Hosts *peer.Clients
	Watch *peer.Watch
	// Shadows has the jobs that run there.
	Shadows *shadow.Shadows
	Host    string
	Version string
	Log     *slog.Logger
	// Started is when execd was started. Problems returns what the administrator should
	// look at, and is never nil.
	Started  time.Time
	Problems func() []api.Alert
	// OwnerOnly is the only uid that may do anything at all, in user mode; -1 in root
	// mode.
	OwnerOnly int

	admission *admission
	ofPeers   *admission // of other hosts, which take nothing from users here
	lookups   fair.Gate  // of names that other hosts bring
	relays    relays
	remember  sync.Once       // what the timeline knows of runs before execd was started
	refusals  fair.Meter      // of tasks, in the log
	stopping  chan struct{}   // closed when waiting clients should ask the next execd
	serving   context.Context // done then
}

// Rules returns what decides what may become a job.
func (s *Server) Rules() *admit.Rules {
	return &admit.Rules{
		Config: s.Config, Store: s.Store, Queue: s.Queue, Launcher: s.Stages.Launcher, HookTable: s.Stages.HookTable, Away: s.Shadows.Away,
		Transfers: s.Transfers, Host: s.Host, OwnerOnly: s.OwnerOnly,
	}
}

// who may use a verb. Each handler restricts it to what belongs to the caller.
type who int

const (
	anyone who = iota
	managers
	members  // users who may have jobs here, in user mode only OwnerOnly
	fetchers // managers, and the account of execd's own hooks, of which nothing else is asked

	// peers is added to those: other hosts may use the verb too, for their users, and may be
	// asked by it for ours. They may use no other.
	peers who = 1 << 8
	// hosts is added to peers: other hosts may use the verb for themselves, and nobody else may.
	hosts who = 1 << 9
)

// handleFunc reads and answers a request.
type handleFunc func(*Server, context.Context, job.Caller, *incoming) (any, error)

// turn says in which queue a request waits until it is answered.
type turn int

const (
	none    turn = iota // the answer costs next to nothing, or waits for an event
	answers             // the answer looks at jobs, or changes them one by one
	submits             // the answer writes records, and shares syncs with others
)

// verbs are all requests.
var verbs = map[string]struct {
	may    who
	limit  int64 // bytes of the request
	turn   turn
	handle handleFunc
}{
	// Base64 makes four bytes of three.
	api.VerbSubmit: {members, (api.MaxScript+2)/3*4 + 8<<20, submits, hurried(handler((*Server).submit))},
	api.VerbAd:     {members, (api.MaxScript+2)/3*4 + 8<<20, answers, handler((*Server).adOf)},
	api.VerbJobs:   {anyone, 1 << 20, answers, (*Server).jobs},
	api.VerbDetail: {anyone, 1 << 20, answers, (*Server).detail},
	api.VerbDelete: {members, 1 << 20, answers, handler((*Server).delete)},
	api.VerbWait:   {anyone, 1 << 16, none, handler((*Server).wait)},
	api.VerbFind:   {anyone, 1 << 20, answers, handler((*Server).find)},
	api.VerbEnds:   {anyone, 1 << 20, none, handler((*Server).ends)},
	api.VerbOutput: {anyone, 1 << 16, answers, handler((*Server).output)},
	api.VerbTop:    {anyone, 1 << 16, answers, handler((*Server).top)},

	api.VerbTimeline: {anyone, 1 << 16, answers, (*Server).timeline},

	api.VerbStatus:  {anyone, 1 << 16, answers, handler((*Server).status)},
	api.VerbModify:  {members, 1 << 20, answers, handler((*Server).modify)},
	api.VerbHost:    {anyone, 1 << 16, answers, handler((*Server).host)},
	api.VerbBoxes:   {anyone | peers, 1 << 16, answers, handler((*Server).sandboxes)},
	api.VerbShow:    {anyone, 1 << 16, answers, handler((*Server).show)},
	api.VerbAttach:  {members, 1 << 16, answers, handler((*Server).attach)},
	api.VerbTask:    {members, 16 << 20, submits, (*Server).startTask},
	api.VerbTaskEnd: {members, 1 << 16, none, handler((*Server).taskEnd)},
	api.VerbReload:  {members, 1 << 16, answers, handler((*Server).reload)},
	// The request has two texts, and JSON may make six bytes of one.
	api.VerbConfigure: {members, 12*api.MaxConfiguration + 1<<16, answers, handler((*Server).configure)},
	api.VerbDrain:     {managers, 1 << 16, none, handler((*Server).drain)},
	api.VerbFetch:     {fetchers, 1 << 20, answers, handler((*Server).fetch)},

	api.VerbClaim:         {members | peers, 2*maxAd + 1<<16, submits, handler((*Server).claim)},
	api.VerbActivate:      {members | peers, (api.MaxScript+2)/3*4 + 8<<20, submits, handler((*Server).activate)},
	api.VerbDeactivate:    {members | peers, 1 << 16, none, handler((*Server).deactivate)},
	api.VerbRelease:       {members | peers, 1 << 16, answers, handler((*Server).release)},
	api.VerbRenew:         {members | peers, 1 << 16, none, handler((*Server).renew)},
	api.VerbClaimSuspend:  {members | peers, 1 << 16, answers, handler(suspendClaim)},
	api.VerbClaimContinue: {members | peers, 1 << 16, answers, handler(continueClaim)},
	api.VerbClaimCheck:    {members | peers, 1 << 16, none, handler((*Server).check)},
	api.VerbVacate:        {managers, 1 << 16, answers, handler((*Server).vacate)},
	api.VerbSlots:         {anyone | peers, 1 << 16, answers, (*Server).slotsSince},
	api.VerbRenewAll:      {members | peers, 1 << 20, submits, handler((*Server).renewAll)},
	api.VerbFollow:        {members | peers, 1 << 20, none, ofActivations(activations.follow)},
	api.VerbRunState:      {members | peers, 1 << 16, submits, ofActivations(activations.state)},
	api.VerbAlterRun:      {members | peers, 1 << 16, submits, ofActivations(activations.alter)},
	api.VerbStageHave:     {members | peers | hosts, 1 << 16, none, ofActivations(activations.stageHave)},
	api.VerbStageIn:       {members | peers | hosts, 1 << 16, none, (*Server).stageIn},
	api.VerbStageOut:      {members | peers | hosts, 1 << 16, none, ofActivations(activations.stageOut)},
	api.VerbStageDone:     {members | peers | hosts, 1 << 16, none, ofActivations(activations.stageDone)},
	api.VerbStageStuck:    {members | peers | hosts, 1 << 16, none, ofActivations(activations.stageStuck)},
	api.VerbHello:         {anyone | peers, 1 << 16, none, handler((*Server).hello)},
	api.VerbPeers:         {anyone, 1 << 16, answers, handler((*Server).peers)},

	// JSON may make six bytes of each byte of environment and arguments.
	api.VerbAlter:    {members, 16 << 20, submits, handler((*Server).alter)},
	api.VerbResubmit: {members, 1 << 16, submits, handler((*Server).resubmit)},
}

// maxSocketPath is the size of sun_path without its NUL (unix(7)).
const maxSocketPath = 107

// Listen opens the socket, in place of one that an earlier execd has left. The caller
// holds the lock that keeps other execds away.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("cannot listen: the path of the socket, %s, is longer than %d bytes", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make directory of socket: %w", err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("cannot remove old socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot set mode of socket: %w", err)
	}
	return l, nil
}

type peerKey struct{}

// Open comes before Serve and ServePeers. When ctx is done, clients that wait are told to
// ask again.
func (s *Server) Open(ctx context.Context) {
	s.stopping, s.serving, s.admission, s.ofPeers = make(chan struct{}), ctx, newAdmission(), newPeerAdmission()
	s.lookups.Total, s.lookups.PerUser = maxLookups, maxPeerLookups
	context.AfterFunc(ctx, func() { close(s.stopping) })
}

// Serve answers until ctx is done; then it finishes requests under way.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveOne(w, r, nil) }),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*visitor).cred)
		},
	}
	h.SetKeepAlivesEnabled(false) // one request a connection, since connections are counted
	return serveUntil(ctx, h, newDoor(l, s.Users, s.OwnerOnly, s.Log))
}

// serveUntil answers until ctx is done, and then finishes requests under way.
func serveUntil(ctx context.Context, h *http.Server, l net.Listener) error {
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := h.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) { // a client does not read its reply
			err = h.Close()
		}
		done <- err
	}()
	err := h.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return <-done
	}
	return err
}

// credOf asks the kernel for the other end; nil if that is not known.
func credOf(c net.Conn) (cred *unix.Ucred) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil
	}
	err = raw.Control(func(fd uintptr) { cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return nil
	}
	return cred
}

// serveOne answers one request. If it is that of another host and is denied, refused is
// told.
func (s *Server) serveOne(w http.ResponseWriter, r *http.Request, refused func(*peer.Conn, error)) {
	in := &incoming{
		body: r.Body, size: r.ContentLength, admission: s.admission, deadline: http.NewResponseController(w).SetReadDeadline, serving: s.serving,
		flush: http.NewResponseController(w).Flush,
	}
	if ofPeer(r) {
		in.admission = s.ofPeers
	}
	defer in.done()
	// The body of a refused request is read too, before the connection ends.
	_ = in.deadline(time.Now().Add(bodyPatience))
	ctx, to := r.Context(), newPatientWriter(w)
	reply, err := s.answer(in, r)
	e, ok := errors.AsType[*api.Error](err)
	// Where a stop interrupts the reading of a request, the server takes its client for gone.
	if ctx.Err() != nil && (!ok || e.Code != api.CodeTryAgain) {
		return // the client has gone
	}
	if ok && e.Code == api.CodeDenied && refused != nil {
		refused(ctx.Value(peerKey{}).(*peer.Conn), e)
	}
	long, isLong := reply.(longReply)
	if err != nil || !isLong {
		s.send(ctx, w, to, in, reply, err)
		return
	}
	w.Header().Set("Content-Type", long.contentType())
	err = long.send(ctx, in, to)
	if e, ok := errors.AsType[*unsent](err); ok {
		s.send(ctx, w, to, in, nil, e.error)
		return
	}
	if err != nil {
		s.Log.Debug(fmt.Sprintf("cannot send reply: %v", err))
		// The client must not take what was sent for a whole reply.
		panic(http.ErrAbortHandler)
	}
}

// unsent is the error of a longReply of which nothing was sent yet.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// longReply is a reply that is sent as it is made, since all of it may be much larger
// than its source.
type longReply interface {
	contentType() string
	send(ctx context.Context, in *incoming, w io.Writer) error
}

// send sends a reply or an error. It gives the turn back before, and counts what it
// sends against the room for replies of the user.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, to io.Writer, in *incoming, reply any, err error) {
	status := http.StatusOK
	if err != nil {
		e := s.explained(err)
		status, reply = statusOf(e.Code), e
	}
	text, err := json.Marshal(reply)
	if err != nil {
		s.Log.Error(fmt.Sprintf("cannot send reply: %v", err))
		return
	}
	giveBack(&in.dropBody)
	if in.holdReply(ctx, len(text)) != nil {
		return // the client has gone
	}
	giveBack(&in.leaveTurn)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	if _, err := to.Write(append(text, '\n')); err != nil {
		s.Log.Debug(fmt.Sprintf("cannot send reply: %v", err))
	}
}

// answer answers a request. send gives back what in has taken.
func (s *Server) answer(in *incoming, r *http.Request) (any, error) {
	host, name, relayed := elsewhere(verbOf(r.URL.Path))
	relayed = relayed && !strings.EqualFold(host, s.Host)
	if r.URL.Path == "/metrics" && s.Metrics != nil && !ofPeer(r) {
		return s.measures(in, r)
	}
	verb, ok := verbs[name]
	if !ok || r.Method != http.MethodPost {
		return nil, api.Errorf(api.CodeBadRequest, "execd %s does not know %s %q", s.Version, r.Method, r.URL.Path)
	}
	caller, err := s.caller(r, verb.may&^peers != anyone)
	if err != nil {
		return nil, err
	}
	if (caller.Host != "" || relayed) && verb.may&peers == 0 || caller.Host != "" && relayed {
		return nil, api.Errorf(api.CodeDenied, "denied: no host may ask another for %q", name)
	}
	if verb.may&hosts != 0 && (caller.Host == "" || caller.Name != "") {
		return nil, api.Errorf(api.CodeDenied, "denied: only another host may ask for %q, for itself", name)
	}
	asks := verb.may == fetchers && s.OwnerOnly < 0 && caller.Name == asuser.Account
	if (verb.may == managers || verb.may == fetchers && !asks) && !caller.Manager {
		return nil, api.Errorf(api.CodeDenied, "denied: %q must be manager for this operation", caller.Name)
	}
	if verb.may&^peers == members && s.OwnerOnly >= 0 && caller.UID != s.OwnerOnly && caller.UID != 0 && caller.Host == "" {
		return nil, api.Errorf(api.CodeDenied, "this execd runs jobs of its own user only")
	}
	in.uid, in.limit = caller.UID, verb.limit
	if caller.Host != "" {
		in.uid = keyOf(caller.Host)
	}
	if relayed {
		return relay(host, name, verb.may)(s, r.Context(), caller, in)
	}
	if name == api.VerbConfigure && !caller.Manager && !caller.Operator {
		in.limit = 1 << 16 // the reply is a refusal
	}
	switch verb.turn {
	case none:
	case answers:
		in.gate = &in.admission.answers
	case submits:
		in.gate = &in.admission.submits
	}
	return verb.handle(s, r.Context(), caller, in)
}

// verbOf returns the verb of a path; empty for a path of another version.
func verbOf(path string) string {
	const prefix = "/" + api.Version + "/"
	if len(path) < len(prefix) || path[:len(prefix)] != prefix {
		return ""
	}
	return path[len(prefix):]
}

// caller identifies the caller. If he changes something, the name services are waited for
// where rights hang on their answer: who only looks is not held up by them.
func (s *Server) caller(r *http.Request, changes bool) (job.Caller, error) {
	if c, ok := r.Context().Value(peerKey{}).(*peer.Conn); ok {
		return s.peerCaller(r, c)
	}
	cred, _ := r.Context().Value(peerKey{}).(*unix.Ucred)
	if cred == nil {
		return job.Caller{}, api.Errorf(api.CodeDenied, "the kernel does not say who asks")
	}
	uid := int(cred.Uid)
	u, sure, err := s.Users.Caller(r.Context(), uid)
	switch {
	case errors.Is(err, user.ErrUnknown):
		// The user had a name at the door, or is OwnerOnly: he may look, and has no jobs.
		return job.Caller{UID: uid, Name: strconv.Itoa(uid)}, nil
	case err != nil:
		return job.Caller{}, api.Errorf(api.CodeInternal, "%v", err)
	}
	config := s.Config()
	if changes && !sure && (slices.Contains(config.Managers, u.Name) || slices.Contains(config.Operators, u.Name)) {
		if now, err := s.Users.ByID(r.Context(), uid); err == nil {
			u, sure = now, true
		}
	}
	return job.Caller{
		UID: uid, GID: int(cred.Gid), Name: u.Name, Unsure: !sure,
		Manager:  uid == 0 || uid == s.OwnerOnly || sure && slices.Contains(config.Managers, u.Name),
		Operator: sure && slices.Contains(config.Operators, u.Name),
	}, nil
}

// ofPeer reports whether a request is that of another host.
func ofPeer(r *http.Request) bool {
	_, ok := r.Context().Value(peerKey{}).(*peer.Conn)
	return ok
}

// explained returns an error in the form that is sent to clients.
func (s *Server) explained(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	s.Log.Error(fmt.Sprintf("cannot answer: %v", err))
	return api.Errorf(api.CodeInternal, "%v", err)
}

// statusOf returns the HTTP status of an error.
func statusOf(c api.Code) int {
	switch c {
	case api.CodeBadRequest:
		return http.StatusBadRequest
	case api.CodeRejected, api.CodeLimit:
		return http.StatusUnprocessableEntity
	case api.CodeTryAgain:
		return http.StatusTooManyRequests
	case api.CodeDenied:
		return http.StatusForbidden
	case api.CodeNotFound:
		return http.StatusNotFound
	case api.CodeAway:
		return http.StatusBadGateway
	}
	return http.StatusInternalServerError
}
