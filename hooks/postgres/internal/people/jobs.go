package people

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"paddock/classad"
)

const (
	// maxAd bounds an ad; a script of it has 64 MB at most.
	maxAd = 70000000
	// chunk is how many jobs are sent at once, and chunkBytes of how much.
	chunk      = 1000
	chunkBytes = 8 << 20
)

func (s *session) add(args []string) error {
	flags := s.flags("add")
	queue := flags.String("queue", "default", "the `NAME` of the queue")
	priority := flags.Int("p", 0, "priority, -10000 to 10000; more is sooner")
	after := flags.String("after", "", "not before `TIME`: 90s, 2h or 2026-12-31T18:00:00Z")
	dedup := flags.String("dedup", "", "do not add the job while one of yours with this `KEY` is not over")
	batch := flags.String("batch", "", "a `NAME` for all of them")
	hold := flags.Bool("hold", false, "hold them")
	attempts := flags.Int("attempts", 0, "`TIMES` that a job may fail; 0: as the queue says")
	once := flags.Bool("once", false, "do not run a job again that may have begun")
	owner := flags.String("owner", "", "the `USER` they run as; for administrators")
	over := flags.String("after-any", "", "not before these jobs are over: `ID,ID`")
	ok := flags.String("after-ok", "", "not before these jobs have succeeded: `ID,ID`")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	in := s.in
	switch flags.NArg() {
	case 0:
	case 1:
		f, err := os.Open(flags.Arg(0))
		if err != nil {
			return fmt.Errorf("cannot read ads: %w", err)
		}
		defer f.Close()
		in = f
	default:
		return usagef("add takes one file")
	}
	var lists [2][]int64
	for i, list := range []string{*over, *ok} {
		lists[i] = []int64{}
		if list != "" {
			var err error
			if lists[i], err = ids([]string{list}); err != nil {
				return err
			}
		}
	}
	when, err := moment(*after)
	if err != nil {
		return err
	}
	db, err := s.db()
	if err != nil {
		return err
	}
	optional := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	var tries *int
	if *attempts != 0 {
		tries = attempts
	}
	var added []int64
	// All of them are added or none is.
	err = pgx.BeginFunc(s.ctx, db, func(tx pgx.Tx) error {
		return chunks(newAds(in), func(ads []string, last bool) error {
			if *dedup != "" {
				if len(ads) != 1 || len(added) > 0 || !last {
					return usagef("-dedup is for one job")
				}
				var id int64
				err := tx.QueryRow(s.ctx, `select paddock.submit($1, queue => $2, priority => $3, after => $4, batch => $5, after_any => $6,
					after_ok => $7, hold => $8, max_attempts => $9, once => $10, owner => $11, dedup => $12)`,
					ads[0], *queue, *priority, when, optional(*batch), lists[0], lists[1], *hold, tries, *once, optional(*owner), *dedup).Scan(&id)
				added = append(added, id)
				return err
			}
			rows, err := tx.Query(s.ctx, `select paddock.submit_many($1, queue => $2, priority => $3, after => $4, batch => $5, after_any => $6,
				after_ok => $7, hold => $8, max_attempts => $9, once => $10, owner => $11)`,
				ads, *queue, *priority, when, optional(*batch), lists[0], lists[1], *hold, tries, *once, optional(*owner))
			if err != nil {
				return err
			}
			more, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			added = append(added, more...)
			return err
		})
	})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.out)
	for _, id := range added {
		fmt.Fprintln(out, id)
	}
	return out.Flush()
}

// moment reads a time: one from now, or a point of time. Empty: nil.
func moment(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		t := time.Now().Add(d)
		return &t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usagef("%q is neither a length of time, as 90s or 2h, nor a time, as 2026-12-31T18:00:00Z", text)
	}
	return &t, nil
}

// ads reads ads with empty lines between them.
type ads struct {
	lines *bufio.Scanner
	line  int
	count int
}

func newAds(in io.Reader) *ads {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxAd)
	return &ads{lines: lines}
}

// next returns the next ad. io.EOF says that there is none.
func (a *ads) next() (string, error) {
	var b strings.Builder
	first := 0
	for a.lines.Scan() {
		a.line++
		line := strings.TrimSuffix(a.lines.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			if b.Len() > 0 {
				break
			}
			continue
		}
		if b.Len() == 0 {
			first = a.line
		}
		if b.Len()+len(line) > maxAd {
			return "", a.tooLong()
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if err := a.lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return "", a.tooLong()
	} else if err != nil {
		return "", fmt.Errorf("cannot read ads: line %d: %w", a.line+1, err)
	}
	if b.Len() == 0 {
		return "", io.EOF
	}
	a.count++
	rest, _, _, err := classad.CutOldString(b.String(), "Script")
	if err == nil {
		_, err = classad.ParseOld(rest)
	}
	if err != nil {
		if syntax, ok := errors.AsType[*classad.SyntaxError](err); ok {
			return "", fmt.Errorf("line %d: %s", first+syntax.Line-1, syntax.Msg)
		}
		return "", fmt.Errorf("the ad at line %d: %w", first, err)
	}
	return b.String(), nil
}

func (a *ads) tooLong() error {
	return fmt.Errorf("the ad at line %d has more than %d bytes", max(a.line, 1), maxAd)
}

// chunks calls do with ads, some at a time.
func chunks(a *ads, do func(ads []string, last bool) error) error {
	var some []string
	bytes := 0
	for {
		ad, err := a.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			if a.count == 0 {
				return errors.New("there is no ad")
			}
			if len(some) == 0 {
				return nil
			}
			return do(some, true)
		}
		some = append(some, ad)
		if bytes += len(ad); len(some) == chunk || bytes > chunkBytes {
			if err := do(some, false); err != nil {
				return err
			}
			some, bytes = nil, 0
		}
	}
}

// numbers parses the command line of a command for jobs, and returns which they are.
func (s *session) numbers(flags *flag.FlagSet, args []string) ([]int64, error) {
	if err := s.parse(flags, args); err != nil {
		return nil, err
	}
	return ids(flags.Args())
}

// each calls a function of the database that says for each job what it has done, and prints that.
func (s *session) each(name string, args []string) error {
	flags := s.flags(name)
	numbers, err := s.numbers(flags, args)
	if err != nil {
		return err
	}
	db, err := s.db()
	if err != nil {
		return err
	}
	function := map[string]string{"del": "cancel", "hold": "hold", "rls": "release"}[name]
	rows, err := db.Query(s.ctx, "select id, what from paddock."+function+"($1)", numbers)
	if err != nil {
		return err
	}
	missing := false
	var id int64
	var what string
	_, err = pgx.ForEachRow(rows, []any{&id, &what}, func() error {
		missing = missing || what == "not there"
		_, err := fmt.Fprintf(s.out, "job %d: %s\n", id, what)
		return err
	})
	if err == nil && missing {
		err = exitError(1)
	}
	return err
}

func (s *session) del(args []string) error     { return s.each("del", args) }
func (s *session) hold(args []string) error    { return s.each("hold", args) }
func (s *session) release(args []string) error { return s.each("rls", args) }

func (s *session) alter(args []string) error {
	flags := s.flags("alter")
	var priority, attempts *int
	number := func(to **int) func(string) error {
		return func(text string) error {
			n, err := strconv.Atoi(text)
			if *to = &n; err != nil {
				return errors.New("not a whole number")
			}
			return nil
		}
	}
	flags.Func("p", "`PRIORITY`, -10000 to 10000", number(&priority))
	after := flags.String("after", "", "not before `TIME`; 0s: at once")
	flags.Func("attempts", "`TIMES` that it may fail, 1 to 1000", number(&attempts))
	batch := flags.String("batch", "", "the `NAME` of its batch")
	numbers, err := s.numbers(flags, args)
	if err != nil {
		return err
	}
	if priority == nil && attempts == nil && *after+*batch == "" {
		return usagef("what is to be changed?")
	}
	when, err := moment(*after)
	if err != nil {
		return err
	}
	return s.one(numbers, func(id int64) (string, []any) {
		return "select paddock.alter($1, priority => $2, after => $3, max_attempts => $4, batch => nullif($5, ''))",
			[]any{id, priority, when, attempts, *batch}
	})
}

func (s *session) retry(args []string) error {
	flags := s.flags("retry")
	numbers, err := s.numbers(flags, args)
	if err != nil {
		return err
	}
	return s.one(numbers, func(id int64) (string, []any) { return "select paddock.retry($1)", []any{id} })
}

// one makes a call for each job and prints what has come of it.
func (s *session) one(numbers []int64, call func(id int64) (string, []any)) error {
	db, err := s.db()
	if err != nil {
		return err
	}
	missing := false
	for _, id := range numbers {
		sql, args := call(id)
		var what string
		if err := db.QueryRow(s.ctx, sql, args...).Scan(&what); err != nil {
			return err
		}
		missing = missing || what == "not there"
		fmt.Fprintf(s.out, "job %d: %s\n", id, what)
	}
	if missing {
		return exitError(1)
	}
	return nil
}

// lookAgain is after how long a job is looked at of which no word has come: through a pooler that gives each transaction
// another connection none does, and one that is broken is noticed.
const lookAgain = time.Minute

func (s *session) wait(args []string) error {
	flags := s.flags("wait")
	numbers, err := s.numbers(flags, args)
	if err != nil {
		return err
	}
	if err := s.awaits(numbers); err != nil {
		return err
	}
	status := 0
	for _, id := range numbers {
		end, err := s.end(id)
		for pause := time.Second; err != nil && s.away(err); pause = min(2*pause, 10*time.Second) {
			// What runs goes on meanwhile.
			fmt.Fprintf(s.errs, "paddock-pg: the database is away, and is tried again in %v: %v\n", pause, err)
			s.close()
			time.Sleep(pause)
			if err = s.awaits(numbers); err == nil {
				end, err = s.end(id)
			}
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "job %d: %s\n", id, ending(end.outcome, end.reason))
		if failed := verdict(end.outcome, end.code, end.signal); failed != 0 {
			status = failed
		}
	}
	if status != 0 {
		return exitError(status)
	}
	return nil
}

// awaits has the ends of jobs told from here on.
func (s *session) awaits(numbers []int64) error {
	db, err := s.db()
	if err != nil {
		return err
	}
	if _, err := db.Exec(s.ctx, "listen paddock_over"); err != nil { // in this order
		return err
	}
	_, err = db.Exec(s.ctx, "select paddock.await($1)", numbers)
	return err
}

// end is how a job has ended.
type end struct {
	outcome      string
	reason       *string
	code, signal *int
}

// end waits for the end of a job.
func (s *session) end(id int64) (end, error) {
	for {
		var state string
		var outcome *string
		var e end
		err := s.conn.QueryRow(s.ctx, "select state, outcome, exit_code, signal, reason from paddock.status($1)", id).
			Scan(&state, &outcome, &e.code, &e.signal, &e.reason)
		if errors.Is(err, pgx.ErrNoRows) {
			return e, fmt.Errorf("there is no job %d", id)
		}
		if err == nil && state == "over" {
			e.outcome = *outcome
			return e, nil
		}
		if err == nil {
			err = untilOver(s.ctx, s.conn, id)
		}
		if err != nil {
			return e, err
		}
	}
}

// untilOver returns when a job is said to be over, or it is time to look.
func untilOver(ctx context.Context, db *pgx.Conn, id int64) error {
	limited, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	for {
		n, err := db.WaitForNotification(limited)
		if err != nil && limited.Err() != nil {
			return ctx.Err()
		}
		if err != nil || n.Payload == strconv.FormatInt(id, 10) {
			return err
		}
	}
}

// verdict is the exit status for how a job has ended.
func verdict(outcome string, code, signal *int) int {
	switch {
	case signal != nil:
		return 128 + *signal
	case code != nil && *code != 0:
		return *code
	case outcome != "ok":
		return 1
	}
	return 0
}

// ending says how a job has ended.
func ending(outcome string, reason *string) string {
	if reason == nil {
		return outcome
	}
	return outcome + ": " + plain(*reason)
}
