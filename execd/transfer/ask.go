package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/internal/sandbox/order"
)

// maxMethods is how much a plugin may say of itself.
const maxMethods = 64 << 10

// runPlugin asks a plugin what it can, and prints it for execd.
func runPlugin(path string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m, err := ask(ctx, path, "/", nil, true)
	if err != nil {
		m = order.Methods{Error: err.Error()}
	}
	text, _ := json.Marshal(m) // it has texts alone
	fmt.Printf("%s\n", text)
	if err != nil {
		return exitFailed
	}
	return 0
}

// ask has a plugin say what it can, until ctx is done. With apart it has a process group of
// its own, of which nothing is left.
func ask(ctx context.Context, path, dir string, env []string, apart bool) (order.Methods, error) {
	ctx, cancel := context.WithTimeout(ctx, order.AskTime*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-classad")
	cmd.Dir, cmd.Env = dir, environment(env)
	cmd.WaitDelay = time.Second
	out, said := order.Beginning{Most: maxMethods}, order.Beginning{Most: maxSaid}
	cmd.Stdout, cmd.Stderr = &out, &said
	runtime.LockOSThread() // as in call
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: apart}
	if err := cmd.Start(); err != nil {
		return order.Methods{}, err
	}
	if apart {
		err := error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch err := cmd.Wait(); {
	case ctx.Err() != nil:
		return order.Methods{}, fmt.Errorf("it did not say within %d s what it can", order.AskTime)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return order.Methods{}, fmt.Errorf("asked what it can, it ended: %w: %s", err, cut(said.String()))
	}
	return readMethods(out.String())
}

// readMethods reads the ad with which a plugin says what it can.
func readMethods(text string) (order.Methods, error) {
	var m order.Methods
	ads := split(text)
	if len(ads) == 0 {
		return m, errors.New("asked what it can, it says nothing")
	}
	ad, err := parseAd(ads[0])
	if err != nil {
		return m, fmt.Errorf("asked what it can, it says no ad: %w", err)
	}
	env := classad.Env{My: ad}
	if kind, ok := env.Attr("PluginType").Str(); ok && !strings.EqualFold(kind, "FileTransfer") {
		return m, fmt.Errorf("it is no plugin for transfers, but for %q", cut(kind))
	}
	m.Many, _ = env.Attr("MultipleFileSupport").Bool()
	list, _ := env.Attr("SupportedMethods").Str()
	for _, word := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' }) {
		scheme := order.Scheme(word + "://")
		if scheme == "" {
			return order.Methods{}, fmt.Errorf("it takes %q, which is no scheme of URLs", cut(word))
		}
		if !slices.Contains(m.Schemes, scheme) {
			m.Schemes = append(m.Schemes, scheme)
		}
	}
	const most = 100
	if n := len(m.Schemes); n == 0 || n > most {
		return order.Methods{}, fmt.Errorf("it takes %d schemes of URLs", n)
	}
	return m, nil
}
