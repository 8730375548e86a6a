package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/internal/sandbox/order"
)

// Plugins take files from URLs and to them. They are HTCondor's: one that takes many at
// once is given a file with an ad for each and writes another with what became of it;
// another is called once for each, with the source and the destination.

// item is a file that a plugin takes somewhere.
type item struct {
	url   string
	local string // path
	size  int64
}

// batch is how many files a plugin is given at once.
const batch = 1000

// Bounds of what a plugin may write.
const (
	maxResults = 16 << 20
	maxSaid    = 1000
)

// plugins is a transfer by plugins in one direction.
type plugins struct {
	*worker
	upload bool
	items  map[string][]item // by scheme
}

// add has a file taken, perhaps later, see flush.
func (p *plugins) add(it item) error {
	scheme := order.Scheme(it.url)
	if p.plugin(scheme) == nil {
		return never(unix.EPROTONOSUPPORT, "no plugin is known for %s", quote(it.url))
	}
	if p.items == nil {
		p.items = make(map[string][]item)
	}
	p.items[scheme] = append(p.items[scheme], it)
	if len(p.items[scheme]) >= batch {
		return p.run(scheme)
	}
	return nil
}

// known returns the plugin of a scheme. One of the user's own is in the sandbox by now,
// and is asked what it can.
func (p *plugins) known(scheme string) (*order.Plugin, error) {
	plugin := p.plugin(scheme)
	if strings.HasPrefix(plugin.Path, "/") {
		return plugin, nil
	}
	own := order.Plugin{Scheme: scheme, Path: "./" + plugin.Path}
	m, err := ask(context.Background(), own.Path, order.FilesPath, p.orders.Env, false)
	if err != nil {
		return nil, never(unix.ENOEXEC, "the job's own plugin %s cannot be used: %v", quote(plugin.Path), err)
	}
	own.Many = m.Many
	return &own, nil
}

// stall is how long a plugin may do nothing.
func (p *plugins) stall() time.Duration {
	return time.Duration(cmp.Or(p.orders.Stall, order.PluginTime)) * time.Second
}

func (p *plugins) plugin(scheme string) *order.Plugin {
	for i := range p.orders.Plugins {
		if p.orders.Plugins[i].Scheme == scheme {
			return &p.orders.Plugins[i]
		}
	}
	return nil
}

// flush takes all that was added.
func (p *plugins) flush() error {
	for scheme := range p.items {
		if err := p.run(scheme); err != nil {
			return err
		}
	}
	return nil
}

// run has a plugin take what was added for it.
func (p *plugins) run(scheme string) error {
	items := p.items[scheme]
	delete(p.items, scheme)
	if len(items) == 0 {
		return nil
	}
	if !p.orders.Turn {
		return errTurn // nobody knows how much it is
	}
	p.waits.Store(int64((p.stall() + order.Spare*time.Second) / time.Second))
	defer p.waits.Store(0)
	plugin, err := p.known(scheme)
	if err != nil {
		return err
	}
	if plugin.Many {
		if err := p.many(plugin, items); err != nil {
			return err
		}
	} else {
		for _, it := range items {
			args := []string{it.url, it.local}
			if p.upload {
				args = []string{it.local, it.url}
			}
			if said, err := p.call(plugin, []item{it}, args...); err != nil {
				return p.failed(it.url, said, err)
			}
			p.beat.Add(1)
		}
	}
	for _, it := range items {
		if !p.upload {
			var st unix.Stat_t
			if err := unix.Lstat(it.local, &st); err != nil || kind(&st) != unix.S_IFREG {
				return &failure{text: fmt.Sprintf("the plugin of %s says that it has brought a file, and there is none", quote(it.url))}
			}
			it.size = volume(&st)
		}
		p.files.Add(1)
		p.worker.add(it.size)
	}
	return p.enough()
}

// many gives a plugin a list.
func (p *plugins) many(plugin *order.Plugin, items []item) error {
	const in, out = "plugin.in", "plugin.out"
	dir, err := os.Readlink("/proc/self/fd/" + itoa(order.Say))
	if err != nil {
		return fail("find", "the directory of the sandbox", err)
	}
	var list strings.Builder
	for _, it := range items {
		ad := classad.New(
			classad.Attr{Name: "Url", Expr: classad.String(it.url).Expr()},
			classad.Attr{Name: "LocalFileName", Expr: classad.String(it.local).Expr()},
		)
		list.WriteString(ad.String() + "\n")
	}
	if err := unix.Unlinkat(order.Say, out, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fail("remove", out, err)
	}
	if err := writeSmall(order.Say, in, list.String(), false); err != nil {
		return fail("write", in, err)
	}
	args := []string{"-infile", dir + "/" + in, "-outfile", dir + "/" + out}
	if p.upload {
		args = append(args, "-upload")
	}
	said, ended := p.call(plugin, items, args...)
	results, err := readResults(out)
	if err != nil && ended == nil {
		return &failure{text: fmt.Sprintf("the plugin of %s:// does not say what became of it: %v", plugin.Scheme, err)}
	}
	for _, it := range items {
		r, ok := results[it.url]
		switch {
		case ok && r.ok:
		case ok:
			return &failure{text: fmt.Sprintf("cannot transfer %s: %s", quote(it.url), cut(r.why)), permanent: r.final}
		case ended != nil:
			return p.failed(it.url, said, ended)
		default:
			return &failure{text: fmt.Sprintf("the plugin of %s:// does not say what became of %s", plugin.Scheme, quote(it.url))}
		}
	}
	if ended != nil {
		return p.failed(items[0].url, said, ended)
	}
	return nil
}

// failed is that a plugin has ended with an error. It may pass: nobody knows what a
// plugin's exit status means.
func (p *plugins) failed(url, said string, err error) error {
	if said == "" {
		said = "it said nothing"
	}
	return &failure{text: fmt.Sprintf("cannot transfer %s: the plugin ended: %v: %s", quote(url), err, cut(said))}
}

// cut returns the first line of what somebody has written, as far as it can be shown.
func cut(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(text[:min(len(text), maxSaid)], "?")
}

// environment is that of plugins: they are found by their paths, and find programs of
// the host.
func environment(more []string) []string {
	return append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, more...)
}

// call runs a plugin in the sandbox, and returns the first that it says.
func (p *plugins) call(plugin *order.Plugin, items []item, args ...string) (said string, err error) {
	cmd := exec.Command(plugin.Path, args...)
	cmd.Dir, cmd.Env = order.FilesPath, environment(p.orders.Env)
	// It goes with us; the signal comes when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()
	cmd.Stderr = write
	// What it makes is to be no more open than what other programs make.
	mask := unix.Umask(0o022)
	err = cmd.Start()
	unix.Umask(mask)
	write.Close()
	if err != nil {
		return "", err
	}
	over := make(chan bool)
	stalled := make(chan bool, 1)
	go func() { stalled <- p.watch(cmd.Process, items, over) }()
	// What it has left may keep the pipe: it is not waited for.
	words := make(chan string, 1)
	go func() {
		var first bytes.Buffer
		_, _ = io.CopyN(&first, read, maxSaid)
		words <- first.String()
		_, _ = io.Copy(io.Discard, read)
	}()
	err = cmd.Wait()
	close(over)
	switch {
	case <-stalled:
		return "", fmt.Errorf("it did nothing for %v", p.stall())
	case err == nil:
		return "", nil
	}
	_ = read.SetReadDeadline(time.Now().Add(time.Second))
	return <-words, err
}

// watch looks whether a plugin does something: it or what it has started reads or writes,
// or its files grow. One that does not is ended, which watch reports.
func (p *plugins) watch(plugin *os.Process, items []item, over <-chan bool) (stalled bool) {
	limit := p.stall()
	ticker := time.NewTicker(min(10*time.Second, limit/4))
	defer ticker.Stop()
	last, since := "", time.Now()
	for {
		select {
		case <-over:
			return stalled
		case <-ticker.C:
		}
		size := int64(0)
		for _, it := range items {
			var st unix.Stat_t
			if unix.Lstat(it.local, &st) == nil {
				size += st.Size
			}
		}
		switch now := fmt.Sprint(size, counters(plugin.Pid)); {
		case now != last:
			last, since = now, time.Now()
			p.beat.Add(1)
		case time.Since(since) > limit:
			stalled = true
			_ = plugin.Kill() // what it has started is ended with our group
		}
	}
}

// counters returns what a process, and those that it has started, have read and written.
func counters(pid int) string {
	const most = 100
	var text strings.Builder
	list := []string{itoa(pid)}
	for i := 0; i < len(list) && i < most; i++ {
		dir := "/proc/" + list[i]
		io, _ := os.ReadFile(dir + "/io")
		text.Write(io)
		threads, _ := filepath.Glob(dir + "/task/*/children") // each has those that it has started
		for _, name := range threads {
			children, _ := os.ReadFile(name)
			list = append(list, strings.Fields(string(children))...)
		}
	}
	return text.String()
}

// result is what a plugin says of one file.
type result struct {
	ok    bool
	why   string
	final bool // it says that another attempt would fail as well
}

// readResults reads the ads that a plugin has written, by their URLs.
func readResults(name string) (map[string]result, error) {
	fd, err := openBeneath(order.Say, name, unix.O_RDONLY|unix.O_NONBLOCK, 0, true)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxResults+1))
	if err != nil || len(text) > maxResults {
		return nil, errors.Join(err, errors.New("it writes too much"))
	}
	results := make(map[string]result)
	for _, part := range split(string(text)) {
		ad, err := parseAd(part)
		if err != nil {
			return results, err
		}
		env := classad.Env{My: ad}
		url, _ := env.Attr("TransferUrl").Str()
		ok, _ := env.Attr("TransferSuccess").Bool()
		why, _ := env.Attr("TransferError").Str()
		again, said := env.Attr("TransferRetryable").Bool()
		if why == "" {
			why = "the plugin does not say why"
		}
		results[url] = result{ok, why, said && !again}
	}
	return results, nil
}

// parseAd reads an ad in either of its forms.
func parseAd(text string) (*classad.Ad, error) {
	if strings.HasPrefix(text, "[") {
		return classad.ParseAd(text)
	}
	return classad.ParseOld(text)
}

// split cuts a text into ads: each in brackets, or else in lines that end with an empty
// one.
func split(text string) []string {
	var ads []string
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		end := len(text)
		if text[0] == '[' {
			end = closing(text)
		} else if i := strings.Index(text, "\n\n"); i >= 0 {
			end = i
		}
		ads = append(ads, text[:end])
		text = text[end:]
	}
	return ads
}

// closing returns the length of the ad in brackets that a text begins with.
func closing(text string) int {
	depth, quoted := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted != 0 && c == '\\':
			i++
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '"' || c == '\'':
			quoted = c
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}
