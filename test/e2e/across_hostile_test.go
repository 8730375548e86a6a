package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"paddock/execd/api"
	"paddock/test/harness"
)

// impostor is an execute host that means no good: it has the key of node, and does as node does,
// but for the output of jobs, of which it says what it likes.
type impostor struct {
	mu     sync.Mutex
	says   func(w http.ResponseWriter) // guarded by mu; nil: what node says
	served int                         // guarded by mu; how often it did not
}

// newImpostor is between login and node of a pool from now on.
func newImpostor(a *elsewhere) *impostor {
	a.t.Helper()
	key := func(d *desk) material { return materialOf(a.t, read(a.t, d.dir+"/etc/host.pem")) }
	node, login := key(a.node), key(a.login)
	var im impostor
	to := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: "node"}) },
		FlushInterval: -1, ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{Certificates: []tls.Certificate{*login.cert}, RootCAs: login.roots, ServerName: "node", MinVersion: tls.VersionTLS13}}
			return d.DialContext(ctx, "tcp", "127.0.0.1:"+a.port)
		}},
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*node.cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13})
	if err != nil {
		a.t.Fatal(err)
	}
	srv := &http.Server{ //nolint:gosec // its only client is login
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			im.mu.Lock()
			says := im.says
			im.mu.Unlock()
			if says == nil || !strings.HasSuffix(r.URL.Path, "/"+api.VerbStageOut) {
				to.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // it is not asked for anything else
			w.Header().Set("Content-Type", "application/octet-stream")
			says(w)
			im.mu.Lock()
			im.served++
			im.mu.Unlock()
		}),
	}
	a.t.Cleanup(func() { srv.Close() })
	go srv.Serve(l)
	write(a.t, a.login.dir+"/etc/peers", "node "+l.Addr().String()+" execute\n", 0o644)
	a.login.Daemon.Kill()
	a.login.begin()
	a.state(api.PeerUp, "")
	return &im
}

// set has it say something.
func (im *impostor) set(says func(w http.ResponseWriter)) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.says = says
}

func (im *impostor) count() int {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.served
}

// forgery is a stream of package pack that no sender would make, though its digests are right.
type forgery struct {
	bytes.Buffer
	root [32]byte
	file []byte // that is open: type and payload
	data [32]byte
	zips *zstd.Encoder // blocks are compressed; nil: they are not
}

// begin says how much there is.
func begin(items, size uint64) *forgery {
	f := &forgery{}
	f.WriteString("paddock-pack 2\n")
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, items), size)
	f.record(1, append(b, make([]byte, 16+64)...))
	return f
}

func (f *forgery) record(kind byte, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(kind)<<24|uint32(len(payload)))
	f.Write(head)
	f.Write(payload)
}

func (f *forgery) sum(parts ...[]byte) {
	f.root = blake3.Sum256(append(f.root[:], bytes.Join(parts, nil)...))
}

// close counts the file that is open.
func (f *forgery) close() {
	if f.file != nil {
		f.sum(f.file, f.data[:])
		f.file = nil
	}
}

// about is the mode and the time of an item.
func about(mode uint16) []byte {
	return append(binary.BigEndian.AppendUint16(nil, mode), make([]byte, 12)...)
}

func (f *forgery) item(kind byte, payload []byte) {
	f.close()
	f.sum([]byte{kind}, payload)
	f.record(kind, payload)
}

func (f *forgery) dir(name string) *forgery { f.item(3, []byte(name)); return f }

func (f *forgery) up() *forgery { f.item(4, about(0o755)); return f }

func (f *forgery) link(name, target string) *forgery {
	f.item(7, append(about(0o777), name+"\x00"+target...))
	return f
}

func (f *forgery) open(name string, mode uint16, size int) *forgery {
	f.close()
	p := binary.BigEndian.AppendUint64(about(mode), uint64(size))
	p = append(append(p, make([]byte, 16)...), name...)
	f.file, f.data = append([]byte{5}, p...), [32]byte{}
	f.record(5, p)
	return f
}

// block has data as blocks of the length that they may have.
func (f *forgery) block(at int, data []byte) *forgery {
	for part := range slices.Chunk(data, 256<<10) {
		digest := blake3.Sum256(part)
		b := binary.BigEndian.AppendUint64(nil, uint64(at))
		if f.zips != nil {
			f.record(8, bytes.Join([][]byte{{1}, b, digest[:], f.zips.EncodeAll(part, nil)}, nil))
		} else {
			f.record(8, bytes.Join([][]byte{{0}, b, digest[:], part}, nil))
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		f.data = blake3.Sum256(bytes.Join([][]byte{f.data[:], b, digest[:]}, nil))
		at += len(part)
	}
	return f
}

func (f *forgery) text(name, text string) *forgery {
	return f.open(name, 0o644, len(text)).block(0, []byte(text))
}

func (f *forgery) end() *forgery {
	f.close()
	f.record(10, append(f.root[:], make([]byte, 8)...))
	return f
}

// said has an impostor say a stream.
func said(f *forgery) func(http.ResponseWriter) {
	text := f.Bytes()
	return func(w http.ResponseWriter) { _, _ = w.Write(text) } // login may have had enough of it
}

// REQ-XFER-74: an execute host that means no good writes nothing outside of the destination of a job,
// and no more than may come. What it does has the output wait for somebody to look; it comes when
// the host is as it should be.
func TestAcrossHostile(t *testing.T) {
	parallel(t)
	a := newAcross(t, "TRANSFER_PATIENCE = 0\nMAX_TRANSFER_OUTPUT_MB = 8\nMAX_TRANSFER_ITEMS = 100\n", "")
	im := newImpostor(a)
	u := a.login.dir + "/u/"
	a.mine("dest/.keep", "")
	im.set(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "GET / HTTP/1.0\r\n\r\n") })
	job := a.submit("echo on >>"+u+"ran; echo 1 >right", "-sandbox", "y", "-stageout_to", u+"dest")
	a.shown(job, "Eto")
	if im.count() == 0 {
		t.Fatal("login has not asked the impostor")
	}
	next := func(what, reason string, says func(http.ResponseWriter)) {
		t.Helper()
		was := im.count()
		im.set(says)
		a.as("qmod", "-cj", fmt.Sprint(job))
		if err := harness.WaitFor(patience, what+" to be served", func() (bool, error) { return im.count() > was, nil }); err != nil {
			t.Fatalf("%v\n%s", err, a.login.Log())
		}
		if line := a.shown(job, "Eto"); !strings.Contains(line.Reason, reason) {
			t.Errorf("%s: %q; want %q", what, line.Reason, reason)
		}
		found, err := filepath.Glob(u + "dest/[^.]*")
		if err != nil || len(found) > 0 {
			t.Errorf("%s: %q has come, %v", what, found, err)
		}
	}
	const damaged = "the stream is damaged"
	for _, name := range []string{"..", ".", "../escaped", "/" + a.login.dir + "/u/escaped", "in/escaped", "in\x00escaped", ""} {
		next(fmt.Sprintf("file %q", name), damaged, said(begin(1, 1).text(name, "x").end()))
		next(fmt.Sprintf("directory %q", name), damaged, said(begin(3, 1).dir(name).text("escaped", "x").up().end()))
	}
	next("a file behind a link", "twice", said(begin(4, 1).dir("in").up().link("to", "in").dir("to").text("x", "x").up().end()))
	next("more ups than directories", damaged, said(begin(3, 1).dir("in").up().up().text("escaped", "x").end()))
	next("a mode of more rights", damaged, said(begin(1, 1).open("root", 0o4755, 1).block(0, []byte("x")).end()))
	next("too many bytes, as it says", "at most 8388608 bytes and 100 items", said(begin(1, 9<<20).text("x", "x").end()))
	zips, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := begin(1, 1<<10).open("x", 0o644, 1<<30)
	bomb.record(8, slices.Concat([]byte{1}, make([]byte, 8+32), zips.EncodeAll(make([]byte, 1<<30), nil)))
	next("a block that becomes 1 GB", "cannot be decompressed", said(bomb.end()))
	many := begin(3, 1<<10)
	many.zips = zips
	for i := range 3 {
		many.open(fmt.Sprint("x", i), 0o644, 3<<20).block(0, make([]byte, 3<<20))
	}
	next("too many bytes, and it says otherwise", "at most 8388608 bytes and 100 items", said(many.end()))
	many = begin(1, 0)
	for i := range 101 {
		many.open(fmt.Sprint("x", i), 0o644, 0)
	}
	next("too many items", "at most 8388608 bytes and 100 items", said(many.end()))
	next("another root", damaged, func(w http.ResponseWriter) {
		f := begin(1, 1).text("x", "x")
		f.close()
		f.root[0]++
		said(f.end())(w)
	})
	next("its own failure", "the sender says: it hurts", func(w http.ResponseWriter) {
		f := begin(1, 1)
		f.record(11, append([]byte{0, 0, 0, 5, 1}, "it hurts"...))
		said(f)(w)
	})
	im.set(nil)
	a.as("qmod", "-cj", fmt.Sprint(job))
	if l := a.qacct(job, 1); len(l) != 1 || l[0]["failed"] != "0" {
		t.Errorf("qacct: %q", l)
	}
	if got, ran := a.read("dest/right"), a.read("ran"); got != "1\n" || ran != "on\n" {
		t.Errorf("what it has left is %q, and it has run: %q", got, ran)
	}
	for _, pattern := range []string{u + "*escaped*", u + "dest/*escaped*", a.login.dir + "/*escaped*", u + "dest/.paddock*"} {
		if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
			t.Errorf("%q is left, %v", found, err)
		}
	}
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// What a host sends to the home directory of a user has no file that his programs would read
// unasked, and no link that leads out.
func TestAcrossHostileHome(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("the home directory of who runs this test is not the test's")
	}
	a := newAcross(t, "", "")
	im := newImpostor(a)
	im.set(said(begin(9, 4).text(".profile", "evil\n").dir(".ssh").text("authorized_keys", "evil\n").up().link("out", "/etc/passwd").link("up", "../x").
		dir("sub").text(".dot", "fine\n").up().text("acrossed", "fine\n").end()))
	job := a.submit("true; echo 1 >x", "-sandbox", "y", "-stageout_to", second.Home)
	a.qacct(job, 1)
	for _, name := range []string{"acrossed", "sub/.dot"} {
		if got := read(t, second.Home+"/"+name); got != "fine\n" {
			t.Errorf("%s has %q", name, got)
		}
	}
	for _, name := range []string{".ssh", "out", "up"} {
		if _, err := os.Lstat(second.Home + "/" + name); err == nil {
			t.Errorf("%s has come", name)
		}
	}
	if text, err := os.ReadFile(second.Home + "/.profile"); err == nil && strings.Contains(string(text), "evil") {
		t.Error(".profile was replaced")
	}
	_ = os.RemoveAll(second.Home + "/sub")
	_ = os.Remove(second.Home + "/acrossed")
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}

// most returns how much memory a process has had at most, in bytes.
func most(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, bad := strconv.Atoi(word)
	if err != nil || bad != nil {
		t.Errorf("process %d: %v, %v", pid, err, bad)
	}
	return n << 10
}

// The memory of the submit host does not grow with what another host sends, however much that is:
// neither that of execd, nor that of who writes it to the disk.
func TestAcrossHostileMemory(t *testing.T) {
	parallel(t)
	a := newAcross(t, "TRANSFER_PATIENCE = 0\n", "")
	im := newImpostor(a)
	peak := 0 // of workers, as the impostor sees it before it has ended
	look := func() {
		for _, pid := range workers(t, a.login.dir) {
			peak = max(peak, most(t, pid))
		}
	}
	flood := func(w http.ResponseWriter) {
		send := func(f *forgery) bool {
			_, err := w.Write(f.Bytes())
			f.Reset()
			return err == nil
		}
		for range 16 << 10 { // 16 MB of empty lines come first
			if _, err := w.Write(bytes.Repeat([]byte("\n"), 1<<10)); err != nil {
				return
			}
		}
		f := begin(1_000_000, 1<<50)
		name := strings.Repeat("n", 240)
		for i := range 10_000 { // names of 2.5 MB
			f.open(fmt.Sprint(name, i), 0o644, 1<<40)
			if i%100 == 0 && !send(f) {
				return
			}
		}
		for range 2000 { // and those of directories, each in the one before
			f.dir(name)
		}
		block := make([]byte, 256<<10)
		zips, err := zstd.NewWriter(nil)
		if err != nil {
			t.Error(err)
			return
		}
		for i := range 384 { // 96 MB of a file that it forgets again and again
			if f.zips = nil; i%2 == 0 {
				f.zips = zips
			}
			if f.open("x", 0o644, len(block)).block(0, block); !send(f) {
				return
			}
			if i%16 == 0 {
				look()
			}
			f.record(9, nil)
			f.file = nil
		}
		send(f)
	}
	im.set(flood)
	before := most(t, a.login.Daemon.PID())
	job := a.submit("echo 1 >x", "-sandbox", "y")
	if line := a.shown(job, "Eto"); !strings.Contains(line.Reason, "ended too early") {
		t.Errorf("reason %q", line.Reason)
	}
	if peak == 0 {
		t.Error("no worker was seen")
	}
	if peak > 64<<20 {
		t.Errorf("a worker had %d bytes", peak)
	}
	if grown := most(t, a.login.Daemon.PID()) - before; grown > 32<<20 {
		t.Errorf("execd has grown by %d bytes, from %d", grown, before)
	}
	t.Logf("worker %d, execd from %d to %d bytes", peak, before, most(t, a.login.Daemon.PID()))
	im.set(nil)
	a.as("qmod", "-cj", fmt.Sprint(job))
	a.qacct(job, 1)
	if got := a.read("x"); got != "1\n" {
		t.Errorf("x has %q", got)
	}
	a.left()
	a.boxes(a.node, 0)
	a.boxes(a.login, 0)
}
