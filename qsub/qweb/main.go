// Qweb serves a page that shows live what execd does: its slots over time, jobs with what they
// use, and how the host is. It is a client like qstat, run by whoever wants to look, and asks
// execd as that user over its socket; execd itself listens on no port for it. The page is
// served at a loopback address to who has the token in its address, or over a Unix socket to a
// web server that has asked who it is. Nothing can be changed by it.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"paddock/execd/api"
)

var version = "0.1.0-dev" // set by the linker

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

const usage = `usage: qweb [-port PORT]
       qweb -socket PATH

Serves a page that shows what execd does, to you alone, and prints its address.
With -socket a web server shows it to whom it likes. See qweb(1).
`

func main() {
	cli.VersionFlag, cli.HelpFlag = &cli.BoolFlag{Name: "version", Usage: "print the version"}, &cli.BoolFlag{Name: "help", Usage: "show help"}
	cli.VersionPrinter = func(*cli.Context) { fmt.Println(api.VersionLine(version)) }
	cli.FlagStringer = flagLine
	app := &cli.App{
		Name: "qweb", Usage: "show what execd does in a browser", HideHelpCommand: true, Version: version,
		CustomAppHelpTemplate: api.VersionLine(version) + "\n" + usage + "\nOPTIONS:\n{{range .VisibleFlags}}{{.}}\n{{end}}",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "port", Usage: "serve on `PORT` of 127.0.0.1 and no other"},
			&cli.StringFlag{Name: "socket", Usage: "serve on the Unix socket `PATH`, for a web server"},
			&cli.DurationFlag{Name: "idle", Value: time.Hour, Usage: "end when nobody has looked for `TIME`; 0: never"},
		},
		Action: func(c *cli.Context) error { return run(c) },
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return cli.Exit(err.Error()+"; see qweb -help", exitUsage)
		},
		ExitErrHandler: func(*cli.Context, error) {},
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "qweb: %s\n", api.Visible(err.Error()))
		code := exitFailed
		if e, ok := errors.AsType[cli.ExitCoder](err); ok {
			code = e.ExitCode()
		}
		os.Exit(code)
	}
}

// flagLine returns the line of a flag in the help, with one dash as in the manual.
func flagLine(f cli.Flag) string {
	word, text := "-"+f.Names()[0], f.(cli.DocGenerationFlag).GetUsage()
	if strings.Contains(text, "`") {
		var argument string
		argument, text = flag.UnquoteUsage(&flag.Flag{Usage: text})
		word += " " + argument
	}
	return fmt.Sprintf("   %-13s %s", word, text)
}

func run(c *cli.Context) error {
	switch {
	case c.NArg() > 0:
		return cli.Exit(fmt.Sprintf("unexpected argument %q; see qweb -help", c.Args().First()), exitUsage)
	case c.IsSet("port") && c.IsSet("socket"):
		return cli.Exit("-port and -socket exclude each other; see qweb -help", exitUsage)
	case c.Int("port") < 0 || c.Int("port") > 65535:
		return cli.Exit(fmt.Sprintf("%d is no port", c.Int("port")), exitUsage)
	case c.Duration("idle") < 0:
		return cli.Exit(fmt.Sprintf("%v is no time", c.Duration("idle")), exitUsage)
	}
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	places := api.ClientPlaces()
	s := &site{client: api.NewClient(places.Socket)}
	if err := s.client.Call(ctx, api.VerbStatus, &api.StatusRequest{}, &api.StatusReply{}); err != nil {
		return err
	}
	s.hub = newHub(s.client)
	g := &guard{next: s.routes()}
	idle := c.Duration("idle")
	var l net.Listener
	var err error
	if path := c.String("socket"); path != "" {
		if l, err = listenUnix(path); err != nil {
			return err
		}
		defer os.Remove(path)
		if !c.IsSet("idle") {
			idle = 0
		}
	} else {
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Int("port")))); err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
		me, err := user.Current()
		if err != nil {
			return fmt.Errorf("cannot tell who you are: %w", err)
		}
		s.owner = me.Username
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		g.hosts = []string{"127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port}
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return fmt.Errorf("cannot make a token: %w", err)
		}
		g.token = hex.EncodeToString(secret)
		if _, err := fmt.Printf("http://127.0.0.1:%s/#%s\n", port, g.token); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err) // nobody would know the token
		}
	}
	return serve(ctx, l, g, s.hub, idle)
}

// listenUnix listens on a Unix socket in place of one that was left. The directory says who may
// connect.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("cannot listen on %s: another qweb does", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("cannot listen: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	return l, nil
}

// Requests of a browser are short, and its connections few.
const (
	headTime = 10 * time.Second
	maxHead  = 16 << 10
)

// serve answers until ctx is done, or nobody has looked for a time; 0: for ever.
func serve(ctx context.Context, l net.Listener, h http.Handler, hub *hub, idle time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headTime, MaxHeaderBytes: maxHead, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if idle > 0 {
		go func() {
			for wait := idle; wait > 0; {
				pause(ctx, wait)
				wait = idle
				if since := hub.idle(); !since.IsZero() {
					wait = idle - time.Since(since)
				}
			}
			cancel()
		}()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		server.Close()
	}()
	err := server.Serve(l)
	cancel()
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("cannot serve: %w", err)
}

// number reads a number of a query; 0: there is none.
func number(r *http.Request, name string) int {
	n, err := strconv.Atoi(strings.TrimSpace(r.URL.Query().Get(name)))
	if err != nil || n < 0 || n > api.MaxTask*100 {
		return 0
	}
	return n
}
