// Package people is the commands of paddock-pg by which people use the queue, and administrators look after it.
//
// Only the command imports it. It asks the functions and views of the database, which say who may do what; nothing is decided
// here.
package people

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"paddock/hooks/postgres/internal/engine"
)

// These are exit statuses besides 0 and 1.
const (
	statusUsage = 64 // a command line that makes no sense
	statusAway  = 69 // the database cannot be reached
)

// A command is a word of the command line.
type command struct {
	name, args, help string
	run              func(*session, []string) error
}

var commands []command

func init() {
	commands = []command{
		{"add", "[options] [FILE]", "add the jobs whose ads are in a file or on standard input", (*session).add},
		{"stat", "[-u USER | -u '*'] [-batch NAME] [ID ...]", "show jobs", (*session).stat},
		{"del", "ID ...", "delete jobs; those that run are ended", (*session).del},
		{"hold", "ID ...", "have jobs not begin", (*session).hold},
		{"rls", "ID ...", "release them", (*session).release},
		{"alter", "[-p N] [-after TIME] [-attempts N] [-batch NAME] ID ...", "change jobs", (*session).alter},
		{"retry", "ID ...", "run jobs again that failed, or wait, or are held", (*session).retry},
		{"wait", "ID ...", "wait until jobs are over; the exit status is that of the last", (*session).wait},
		{"top", "[-n TIMES] [-s SECONDS]", "show queues and hosts again and again", (*session).top},
		{"hosts", "", "show the hosts that take jobs", (*session).hosts},
		{"queue", "[NAME [PARAMETER=VALUE ...]]", "show queues, or make or change one", (*session).queue},
		{"share", "QUEUE [USER=SHARE ...]", "show who has had how much of a queue, or set shares", (*session).share},
		{"provision", "[-n] [-resume] [-loop TIME] POOL", "have a cluster run as many pilots as the jobs that wait need", (*session).provision},
		{"doctor", "", "say what is wrong, with exit status 1 if anything is", (*session).doctor},
		{"prune", "[-older TIME]", "remove ended jobs that need not be kept", (*session).prune},
		{"init", "[-n]", "make the roles and the schema; with -n print the SQL", (*session).initialize},
		{"migrate", "", "bring the schema to the newest version", (*session).migrate},
	}
}

// session is one call of a command.
type session struct {
	ctx        context.Context
	connection string
	conn       *pgx.Conn // nil: not needed yet
	in         io.Reader
	out, errs  io.Writer
	version    string
}

// usageError is what is wrong with a command line.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// exitError is an exit status of which all was said.
type exitError int

func (e exitError) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// Main runs a command and returns the exit status.
func Main(ctx context.Context, args []string, version string) int {
	out := &output{}
	s := &session{ctx: ctx, in: os.Stdin, out: out, errs: os.Stderr, version: version}
	err := s.main(args)
	if _, said := errors.AsType[exitError](err); out.failed != nil && (err == nil || said) {
		err = fmt.Errorf("cannot write standard output: %w", out.failed)
	}
	return s.status(err)
}

// output is standard output. That it cannot be written is told at the end.
type output struct{ failed error }

func (o *output) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	o.failed = cmp.Or(o.failed, err)
	return n, err
}

func (s *session) status(err error) int {
	defer s.close()
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return int(exit)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		fmt.Fprintln(s.errs, "paddock-pg:", explain(pg))
		if pg.Hint != "" {
			fmt.Fprintln(s.errs, "paddock-pg: "+pg.Hint)
		}
	} else { // of a host with several addresses there are several lines
		fmt.Fprintln(s.errs, "paddock-pg:", strings.ReplaceAll(err.Error(), "\n\t", " "))
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return statusUsage
	}
	if s.away(err) {
		return statusAway
	}
	return 1
}

// away reports whether the database cannot be reached, or not any more.
func (s *session) away(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok || s.conn != nil && s.conn.IsClosed()
}

// explain says what an error of the database means to who has called the command.
func explain(e *pgconn.PgError) string {
	switch e.Code {
	case "3F000", "42P01":
		return e.Message + ": is this the database of the queue? paddock-pg init makes it one"
	case "55P03":
		return "somebody has a transaction open that changes the same; paddock-pg doctor may name it"
	case "23514":
		what := strings.TrimSuffix(strings.TrimPrefix(e.ConstraintName, e.TableName+"_"), "_check")
		return fmt.Sprintf("no %s has that %s; see postgres(7)", e.TableName, what)
	}
	return e.Message
}

func (s *session) main(args []string) error {
	flags := s.flags("paddock-pg")
	connection := flags.String("d", os.Getenv("PADDOCK_PG"), "the database, as `CONNECTION` of libpq")
	version := flags.Bool("version", false, "print the version")
	flags.Usage = func() { s.usage(flags) }
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if *version {
		fmt.Fprintln(s.out, "paddock-pg", s.version)
		return nil
	}
	if s.connection = *connection; s.connection == "" && os.Getenv("PGDATABASE") == "" && os.Getenv("PGSERVICE") == "" {
		s.connection = "dbname=paddock"
	}
	if err := engine.CheckConnection(s.connection); err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() == 0 {
		return usagef("which command? paddock-pg -help lists them")
	}
	for _, c := range commands {
		if c.name == flags.Arg(0) {
			return c.run(s, flags.Args()[1:])
		}
	}
	return usagef("there is no command %q; paddock-pg -help lists them", flags.Arg(0))
}

func (s *session) usage(flags *flag.FlagSet) {
	fmt.Fprint(s.out, "usage: paddock-pg [-d CONNECTION] COMMAND [options] [arguments]\n"+
		"       paddock-pg [-config FILE] serve | FETCH_WORK | REPLY_FETCH WORD |\n"+
		"                  RENEW_CLAIM | EVICT_CLAIM | REPORT_WORK WORD\n\n")
	for _, c := range commands {
		fmt.Fprintf(s.out, "  %-9s %s\n", c.name, c.help)
	}
	fmt.Fprintln(s.out)
	s.options(flags)
}

// flags returns the options of a command.
func (s *session) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {
		for _, c := range commands {
			if c.name == name {
				fmt.Fprintf(s.out, "usage: %s\n  %s\n", strings.TrimSpace("paddock-pg "+name+" "+c.args), c.help)
			}
		}
		s.options(flags)
	}
	return flags
}

// options prints the options of a command, and parse reads them. The library prints what is wrong to where it prints help.
func (s *session) options(flags *flag.FlagSet) {
	flags.SetOutput(s.out)
	flags.PrintDefaults()
	flags.SetOutput(io.Discard)
}

func (s *session) parse(flags *flag.FlagSet, args []string) error {
	help := flags.Usage
	flags.Usage = func() {}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		help()
		return exitError(0)
	}
	if err != nil {
		return usagef("%v", err)
	}
	return nil
}

// alone is parse for a command that takes no arguments.
func (s *session) alone(flags *flag.FlagSet, args []string) error {
	err := s.parse(flags, args)
	if err == nil && flags.NArg() > 0 {
		err = usagef("%s takes no arguments: %q", flags.Name(), flags.Arg(0))
	}
	return err
}

// db returns the connection.
func (s *session) db() (*pgx.Conn, error) {
	if s.conn != nil {
		return s.conn, nil
	}
	c, err := engine.Configure(s.connection)
	if err != nil {
		return nil, usageError(err.Error())
	}
	if s.conn, err = pgx.ConnectConfig(s.ctx, c); err != nil {
		return nil, err
	}
	return s.conn, nil
}

// close closes the connection. The next who needs it makes another.
func (s *session) close() {
	if s.conn != nil {
		s.conn.Close(context.WithoutCancel(s.ctx))
		s.conn = nil
	}
}

// ids reads numbers of jobs.
func ids(args []string) ([]int64, error) {
	if len(args) == 0 {
		return nil, usagef("which job?")
	}
	var all []int64
	for _, arg := range args {
		for word := range strings.SplitSeq(arg, ",") {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil || n < 1 {
				return nil, usagef("%q is no number of a job", word)
			}
			all = append(all, n)
		}
	}
	return all, nil
}
