// Execd is the execution daemon: it takes jobs from qsub over a Unix socket,
// starts a shepherd for each, collects what they leave in the spool and writes
// the accounting file. See execd(8).
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/boot"
	"paddock/execd/internal/daemon"
	"paddock/execd/internal/slot"
	"paddock/internal/backoff"
)

// version is set by the linker.
var version = "0.1.0-dev"

// The exit statuses are those of sysexits(3), but for -check, and for -status, which
// monitors call.
const (
	exitDamage      = 1
	exitWarning     = 1
	exitCritical    = 2
	exitUnknown     = 3
	exitUsage       = 64
	exitUnavailable = 69
	exitConfig      = 78
)

// usage are the ways to call execd; each takes -dev or -root too.
const usage = `usage: execd [-debug] [-dev DIR | -root DIR]
       execd -t
       execd -check [-repair]
       execd -status [-json]
       execd -boot [-off]
       execd -drain [-off | [-speed SPEED] [-wait]]
       execd -fetch [SLOT ...]
       execd -renew [SLOT ...]
       execd -vacate [-fast] SLOT ...
       execd -pilot [-grace TIME] [-end TIME] [-config DIR]
       execd -pool new [NAME] [-submit] [-execute]
       execd -pool host NAME [-submit] [-execute] | revoke NAME | list
`

// flagLine returns the line of a flag in the help. It fits a terminal of 80 columns,
// and has one dash as in the manual.
func flagLine(f cli.Flag) string {
	doc := f.(cli.DocGenerationFlag)
	text, words := doc.GetUsage(), []string{"-" + strings.Join(f.Names(), ", -")}
	if before, rest, ok := strings.Cut(text, "`"); ok { // the quotes mark the argument
		argument, after, _ := strings.Cut(rest, "`")
		text, words = before+argument+after, append(words, argument)
	}
	return fmt.Sprintf("   %-15s %s", strings.Join(words, " "), text)
}

func main() {
	closeInherited()
	cli.FlagStringer = flagLine
	app := &cli.App{
		Name:            "execd",
		Writer:          &stdout,
		Version:         version,
		HideHelpCommand: true,

		CustomAppHelpTemplate: api.VersionLine(version) + "\n" + usage + "\nOPTIONS:\n{{range .VisibleFlags}}{{.}}\n{{end}}",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dev", Usage: "run in the foreground as this user, with everything below `DIR`"},
			&cli.StringFlag{Name: "root", Usage: "run in root mode with everything below `DIR`, for tests"},
			&cli.BoolFlag{Name: "check", Usage: "look for damage in the spool and exit"},
			&cli.BoolFlag{Name: "repair", Usage: "with -check: move what is damaged to the directory corrupt"},
			&cli.BoolFlag{Name: "t", Usage: "check the configuration and exit"},
			&cli.BoolFlag{Name: "status", Usage: "ask the running execd how it does"},
			&cli.BoolFlag{Name: "json", Usage: "with -status: print JSON"},
			&cli.BoolFlag{Name: "boot", Usage: "have your execd started when the host boots"},
			&cli.BoolFlag{Name: "drain", Usage: "have the running execd start no more jobs"},
			&cli.BoolFlag{Name: "off", Usage: "with -drain: have it start jobs again; with -boot: undo it"},
			&cli.StringFlag{Name: "speed", Usage: "with -drain: end what runs; `SPEED` is graceful, quick or fast"},
			&cli.BoolFlag{Name: "wait", Usage: "with -drain: return when no job runs"},
			&cli.BoolFlag{Name: "fetch", Usage: "have slots, or all that fetch work, ask for it now"},
			&cli.BoolFlag{Name: "renew", Usage: "have them ask now whether what they fetched may go on"},
			&cli.BoolFlag{Name: "vacate", Usage: "have jobs and claimants leave these slots"},
			&cli.BoolFlag{Name: "fast", Usage: "with -vacate: kill what runs at once"},
			&cli.StringFlag{Name: "pool", Usage: "make certificates of a pool; `VERB` is new, host, revoke, list"},
			&cli.BoolFlag{Name: "pilot", Usage: "run as a job of a batch system, for work that is fetched"},
			&cli.DurationFlag{Name: "grace", Value: 2 * time.Minute, Usage: "with -pilot: leave `TIME` before the end"},
			&cli.StringFlag{Name: "end", Usage: "with -pilot: when it ends, `TIME` as 2027-01-31T18:00:00Z"},
			&cli.StringFlag{Name: "config", Usage: "with -pilot: the `DIR` with its hooks.conf"},
			&cli.BoolFlag{Name: "debug", Usage: "log more"},
		},
		Action: run,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return cli.Exit("execd: "+err.Error()+"; see execd -help", exitUsage)
		},
		// cli would print the error and exit 1.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	err := app.Run(os.Args)
	if err == nil && stdout.failed != nil {
		err = fmt.Errorf("cannot write standard output: %w", stdout.failed)
	}
	if err != nil {
		complain(err)
		os.Exit(exitCode(err))
	}
}

// stdout is standard output. That it cannot be written is told at the end.
var stdout printer

type printer struct{ failed error }

func (p *printer) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	p.failed = cmp.Or(p.failed, err)
	return n, err
}

// closeInherited closes all descriptors that execd inherits besides the standard
// streams. Files that this process has opened itself are closed on exec.
func closeInherited() {
	open, _ := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// complain prints an error, each line under our name. An error without a text was
// printed already.
func complain(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line == "" {
			continue
		}
		if !strings.HasPrefix(line, "execd:") {
			line = "execd: " + line
		}
		fmt.Fprintln(os.Stderr, daemon.Priority(slog.LevelError)+line)
	}
}

func exitCode(err error) int {
	var usage *daemon.UsageError
	var exit cli.ExitCoder
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case errors.As(err, &usage):
		return exitConfig
	}
	return exitUnavailable
}

func run(c *cli.Context) error {
	if c.NArg() > 0 && !c.Bool("fetch") && !c.Bool("renew") && !c.Bool("vacate") && !c.IsSet("pool") {
		return cli.Exit(fmt.Sprintf("execd: unexpected argument %q; see execd -help", c.Args().First()), exitUsage)
	}
	o, err := options(c)
	if err != nil {
		return err
	}
	if !c.Bool("pilot") && slices.ContainsFunc(pilotFlags, c.IsSet) {
		return cli.Exit("execd: -grace, -end and -config belong to -pilot", exitUsage)
	}
	if c.Bool("pilot") {
		return runPilot(c, o)
	}
	if c.Bool("boot") {
		return startAtBoot(c, o)
	}
	if c.Bool("off") && c.Bool("wait") || (c.Bool("off") || c.Bool("wait")) && !c.Bool("drain") {
		return cli.Exit("execd: -off and -wait exclude each other and belong to -drain, and -off to -boot", exitUsage)
	}
	if speed := c.String("speed"); speed != "" && (!c.Bool("drain") || c.Bool("off") || !slices.Contains([]string{"graceful", "quick", "fast"}, speed)) {
		return cli.Exit("execd: -speed is graceful, quick or fast, and belongs to -drain", exitUsage)
	}
	if c.Bool("fast") && !c.Bool("vacate") {
		return cli.Exit("execd: -fast belongs to -vacate", exitUsage)
	}
	if c.Bool("vacate") && c.NArg() == 0 {
		return cli.Exit("execd: -vacate wants the numbers of slots; see qhost -slots", exitUsage)
	}
	if c.Bool("json") && !c.Bool("status") {
		return cli.Exit("execd: -json belongs to -status", exitUsage)
	}
	if c.Bool("status") || c.Bool("drain") || c.Bool("fetch") || c.Bool("renew") || c.Bool("vacate") {
		if c.String("dev") == "" && c.String("root") == "" {
			o.Places = api.ClientPlaces() // the execd that qsub would talk to
		}
		client := api.NewClient(o.Places.Socket)
		if c.Bool("drain") {
			return drain(client, !c.Bool("off"), c.String("speed"), c.Bool("wait"))
		}
		if c.Bool("fetch") || c.Bool("renew") {
			return fetch(client, c.Args().Slice(), c.Bool("renew"))
		}
		if c.Bool("vacate") {
			return vacate(client, c.Args().Slice(), c.Bool("fast"))
		}
		return status(client, c.Bool("json"))
	}
	if c.Bool("repair") && !c.Bool("check") {
		return cli.Exit("execd: -repair belongs to -check", exitUsage)
	}
	if c.Bool("check") {
		clean, err := daemon.CheckSpool(o, c.Bool("repair"), &stdout)
		if err == nil && !clean {
			err = cli.Exit("", exitDamage)
		}
		return err
	}
	if c.IsSet("pool") {
		return pool(o.Places.Config, c.String("pool"), c.Args().Slice())
	}
	if c.Bool("t") {
		return test(o)
	}
	if c.String("dev") != "" && os.Geteuid() == 0 {
		fmt.Fprintln(os.Stderr, daemon.Priority(slog.LevelWarn)+"execd: warning: -dev as root: only root's jobs are run, and as root")
	}
	if o.RootMode {
		// Users have to reach the files whose modes let them, whatever umask the
		// administrator's shell had.
		unix.Umask(0o022)
		_ = os.Chdir("/") // so that no file system is kept from being unmounted
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// A closed pipe as the log must not end a daemon whose jobs run for weeks.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	o.HangUp = make(chan os.Signal, 1)
	signal.Notify(o.HangUp, syscall.SIGHUP)
	return daemon.Run(ctx, o)
}

// options finds mode and places from the flags and the caller.
func options(c *cli.Context) (daemon.Options, error) {
	o := daemon.Options{Version: version, Debug: c.Bool("debug"), Foreground: true}
	dev, root := c.String("dev"), c.String("root")
	if dev == "" && root == "" && (c.Bool("t") || c.Bool("check") || c.IsSet("pool")) {
		dev = os.Getenv("PADDOCK_DIR") // the files of the execd that -status would ask
	}
	switch {
	case dev != "" && root != "":
		return o, cli.Exit("execd: -dev and -root exclude each other", exitUsage)
	case dev != "" || root != "":
		dir, err := filepath.Abs(dev + root)
		if err != nil {
			return o, fmt.Errorf("cannot find directory %q: %w", dev+root, err)
		}
		o.Places, o.RootMode = api.DevPlaces(dir), root != ""
	case os.Geteuid() == 0:
		o.Places, o.RootMode = api.RootPlaces(), true
	default:
		o.Places = api.UserPlaces()
	}
	return o, nil
}

// test checks the configuration, and prints mistakes before warnings.
func test(o daemon.Options) error {
	config, err := daemon.Check(o)
	if err != nil {
		complain(err)
		err = cli.Exit("", exitCode(err))
	}
	if config == nil {
		return err
	}
	for i := range config.Warnings {
		fmt.Fprintf(os.Stderr, "execd: warning: %v\n", &config.Warnings[i])
	}
	if err != nil {
		return err
	}
	from := o.Places.Config
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		from += " does not exist, defaults"
	}
	fmt.Fprintf(&stdout, "%s: ok: queues=%d slots=%d pes=%d ckpts=%d attributes=%d userlists=%d warnings=%d\n", from, len(config.Queues), config.Slots(),
		len(config.PEs), len(config.Checkpoints), len(config.Complex), len(config.UserLists), len(config.Warnings))
	if len(config.Elsewhere) > 0 {
		fmt.Fprintf(&stdout, "queues that have not this host: %s\n", strings.Join(config.Elsewhere, " "))
	}
	return nil
}

// startAtBoot has the user's execd started at boot, or not any more.
func startAtBoot(c *cli.Context, o daemon.Options) error {
	switch {
	case o.RootMode:
		return cli.Exit("execd: -boot is for users; for root systemctl enable --now "+boot.Unit, exitUsage)
	case o.Places.Dev:
		return cli.Exit("execd: -boot and -dev exclude each other", exitUsage)
	}
	bin, err := daemon.BinDir()
	if err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return fmt.Errorf("cannot find your home directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusPatience)
	defer cancel()
	err = api.NewClient(o.Places.Socket).Call(ctx, api.VerbStatus, api.StatusRequest{}, &api.StatusReply{})
	s := &boot.Service{
		Program: filepath.Join(bin, "execd"), Qconf: filepath.Join(daemon.CommandDir(bin), "qconf"), Home: home, Out: &stdout,
		Running: !errors.Is(err, api.ErrUnreachable),
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME"} {
		if v := os.Getenv(name); filepath.IsAbs(v) {
			s.Environment = append(s.Environment, name+"="+v)
		}
	}
	if c.Bool("off") {
		return s.Off(context.Background())
	}
	return s.On(context.Background())
}

// statusPatience is how long execd has to tell its status.
const statusPatience = 10 * time.Second

// status prints the status of the running execd, and exits as plugins of monitors do. An
// execd that does not answer has a status, too.
func status(client *api.Client, asJSON bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), statusPatience)
	defer cancel()
	var reply api.StatusReply
	err := client.Call(ctx, api.VerbStatus, api.StatusRequest{}, &reply)
	word, code := "unknown", exitUnknown
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		word, code, err = "critical", exitCritical, fmt.Errorf("no answer within %v", statusPatience)
	case errors.Is(err, api.ErrUnreachable) && !errors.Is(err, fs.ErrPermission):
		word, code = "critical", exitCritical
	}
	switch {
	case err != nil && asJSON:
		return cli.Exit(fmt.Sprintf("execd: %v", err), code)
	case err != nil:
		fmt.Fprintf(&stdout, "execd: %s: %v\n", word, err)
		return cli.Exit("", code)
	case asJSON:
		text, err := api.Document(&reply)
		if err == nil {
			_, err = stdout.Write(text)
		}
		if err != nil {
			return fmt.Errorf("cannot print status: %w", err)
		}
	default:
		fmt.Fprint(&stdout, statusText(&reply, time.Now()))
	}
	if _, code = severity(reply.Problems); code != 0 {
		return cli.Exit("", code)
	}
	return nil
}

// severity returns the word and the exit status for what is wrong.
func severity(problems []api.Alert) (word string, code int) {
	switch {
	case len(problems) == 0:
		return "ok", 0
	case problems[0].Critical:
		return "critical", exitCritical
	}
	return "warning", exitWarning
}

// statusText is a status as people read it. Its first line, which is all that monitors
// show, has the worst problem.
func statusText(r *api.StatusReply, now time.Time) string {
	var b strings.Builder
	word, _ := severity(r.Problems)
	fmt.Fprintf(&b, "execd %s on %s: %s", r.Version, r.Host, word)
	for i := range r.Problems {
		if i > 0 {
			word, _ = severity(r.Problems[i:])
			b.WriteString(word)
		}
		fmt.Fprintf(&b, ": %s\n", api.Visible(r.Problems[i].Text))
	}
	if len(r.Problems) == 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "tasks: running=%d pending=%d", r.Running, r.Pending)
	for _, n := range []struct {
		name string
		of   int
	}{{"suspended", r.Suspended}, {"held", r.Held}, {"transferring", r.Transferring}, {"stuck", r.Stuck}, {"error", r.Errored}} {
		if n.of > 0 {
			fmt.Fprintf(&b, " %s=%d", n.name, n.of)
		}
	}
	fmt.Fprintf(&b, "\nslots=%d groups=%s\n", r.Slots, r.Groups)
	if r.Drain != nil {
		fmt.Fprintf(&b, "%s\n", r.Drain)
	}
	up := max(now.Sub(r.Started), 0).Round(time.Second).String()
	if days := now.Sub(r.Started) / (24 * time.Hour); days >= 2 {
		up = fmt.Sprintf("%d days", days)
	}
	fmt.Fprintf(&b, "started %s, %s ago\n", r.Started.Local().Format(time.DateTime), up)
	return b.String()
}

// slotIDs parses the names of slots.
func slotIDs(words []string) (ids []api.SlotID, err error) {
	for _, word := range words {
		id, err := slot.ParseID(word)
		if err != nil {
			return nil, cli.Exit(fmt.Sprintf("execd: %q is not a slot; see qhost -slots", word), exitUsage)
		}
		ids = append(ids, api.SlotID(id.String()))
	}
	return ids, nil
}

// fetch has slots of the running execd ask for work, or whether that which they have may go
// on.
func fetch(client *api.Client, words []string, renew bool) error {
	slots, err := slotIDs(words)
	if err != nil {
		return err
	}
	var reply api.FetchReply
	if err := client.Call(context.Background(), api.VerbFetch, api.FetchRequest{Slots: slots, Renew: renew}, &reply); err != nil {
		return err
	}
	fmt.Fprintf(&stdout, "execd: asking: slots=%d\n", reply.Slots)
	return nil
}

// vacate takes slots of the running execd from their holders.
func vacate(client *api.Client, words []string, fast bool) error {
	slots, err := slotIDs(words)
	if err != nil {
		return err
	}
	var reply api.VacateReply
	if err := client.Call(context.Background(), api.VerbVacate, api.VacateRequest{Slots: slots, Fast: fast}, &reply); err != nil {
		return err
	}
	fmt.Fprintf(&stdout, "execd: vacating: slots=%d\n", reply.Vacated)
	return nil
}

// drained describes a drain, as the end of a line.
func drained(d *api.Drain) string {
	if d == nil {
		return ""
	}
	return " " + d.String()
}

// transferring tells of output on its way, as a part of a line; where there is none it says
// nothing.
func transferring(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" transferring=%d", n)
}

// drain has the running execd start no more jobs, or start jobs again.
func drain(client *api.Client, on bool, speed string, wait bool) error {
	req := api.DrainRequest{On: on, Off: !on, Speed: speed}
	for pause := time.Duration(0); ; {
		var reply api.DrainReply
		err := client.Call(context.Background(), api.VerbDrain, req, &reply)
		switch {
		case req.Wait && errors.Is(err, api.ErrUnreachable):
			pause = backoff.Restart.Next(pause)
			time.Sleep(pause)
			continue
		case err != nil:
			return err
		case !on:
			fmt.Fprintln(&stdout, "execd: starts jobs")
			return nil
		case reply.Drain == nil:
			return errors.New("cannot wait: jobs are started again")
		case !req.Wait:
			fmt.Fprintf(&stdout, "execd: running=%d%s%s\n", reply.Running, transferring(reply.Transferring), drained(reply.Drain))
		}
		if !wait || reply.Running+reply.Transferring == 0 {
			return nil
		}
		req, pause = api.DrainRequest{Wait: true}, 0
	}
}
