package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/test/harness"
)

// browser is a Chromium without a window, which is spoken to by its DevTools protocol over a pair
// of pipes: messages are JSON with a NUL behind each.
type browser struct {
	t       *testing.T
	to      *os.File
	session string

	mu       sync.Mutex
	last     int                          // guarded by mu, as all below
	waiting  map[int]chan json.RawMessage // answers, by the number of the message
	requests []string                     // addresses of what the page has asked for
	wrong    []string                     // what the console has of errors, and exceptions
}

// newBrowser starts one with an empty page.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("%v: make web installs it", err)
	}
	commandsR, commandsW := pipe(t)
	answersR, answersW := pipe(t)
	home := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--user-data-dir="+filepath.Join(home, "profile"), "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.ExtraFiles = []*os.File{commandsR, answersW}
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	commandsR.Close()
	answersW.Close()
	b := &browser{t: t, to: commandsW, waiting: map[int]chan json.RawMessage{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read(answersR) }()
	t.Cleanup(func() {
		_, _ = b.send("", "Browser.close", nil) // it ends its processes itself
		exited := make(chan struct{})
		go func() { _ = cmd.Wait(); close(exited) }()
		select {
		case <-exited:
		case <-time.After(patience):
			t.Errorf("Chromium does not end\n%s", log.String())
		}
		cancel()
		<-exited
		<-read
		commandsW.Close()
		answersR.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// read takes answers and events until there are no more.
func (b *browser) read(from *os.File) {
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[m.ID]; m.ID > 0 && c != nil {
			c <- text[:len(text)-1]
			delete(b.waiting, m.ID)
		}
		b.event(m.Method, m.Params)
		b.mu.Unlock()
	}
}

// event takes note of what a page must not do. b.mu is held.
func (b *browser) event(method string, params json.RawMessage) {
	switch method {
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		_ = json.Unmarshal(params, &p)
		b.requests = append(b.requests, p.Request.URL)
	case "Runtime.exceptionThrown":
		b.wrong = append(b.wrong, string(params))
	case "Runtime.consoleAPICalled":
		var p struct{ Type string }
		_ = json.Unmarshal(params, &p)
		if p.Type == "error" || p.Type == "warning" || p.Type == "assert" {
			b.wrong = append(b.wrong, string(params))
		}
	case "Log.entryAdded":
		var p struct{ Entry struct{ Level string } }
		_ = json.Unmarshal(params, &p)
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			b.wrong = append(b.wrong, string(params))
		}
	}
}

// send sends a message and returns its answer.
func (b *browser) send(session, method string, params any) (json.RawMessage, error) {
	b.mu.Lock()
	b.last++
	id, answer := b.last, make(chan json.RawMessage, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return nil, err
	}
	select {
	case text, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: Chromium has ended", method)
		}
		return text, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

// call has the browser do something, and reads the result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	text, err := b.send(b.session, method, params)
	if err != nil {
		b.t.Fatal(err)
	}
	var m struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(text, &m); err != nil {
		b.t.Fatalf("%s: %v in %s", method, err, text)
	}
	if m.Error != nil {
		b.t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		b.t.Fatalf("%s: %v in %s", method, err, m.Result)
	}
}

// eval evaluates an expression in the page, a promise to its end, and reads its value.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%.200s: %s", expression, r.ExceptionDetails)
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(r.Result.Value, value); err != nil {
		b.t.Fatalf("%.200s: %v in %q", expression, err, r.Result.Value)
	}
}

// until waits until an expression is true in the page.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	if err := harness.WaitFor(patience, what, func() (ok bool, err error) {
		b.eval("!!("+expression+")", &ok)
		return ok, nil
	}); err != nil {
		var text string
		b.eval("document.body?.innerText ?? ''", &text)
		b.t.Fatalf("%v; the page is\n%s", err, text)
	}
}

// open loads a page.
func (b *browser) open(address string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": "about:blank"}, nil)
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.until("the page to be loaded", fmt.Sprintf("location.href === %q && document.readyState === 'complete'", address))
}

// view sets the size of the window and the scheme of colours that its user prefers.
func (b *browser) view(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	text := ""
	if len(key) == 1 {
		text = key
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "text": text}, nil)
	}
}

// shoot writes a picture of the window into the directory that PADDOCK_SHOTS names, if any.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("PADDOCK_SHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// complaints returns what was wrong so far, and requests that went elsewhere than to an address.
func (b *browser) complaints(address string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := append([]string(nil), b.wrong...)
	for _, url := range b.requests {
		if !strings.HasPrefix(url, address) && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			list = append(list, "asks "+url)
		}
	}
	return list
}
