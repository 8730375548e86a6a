package people

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// width is what a line has room for.
const width = 80

// table writes rows in columns, and cuts off what is wider than a line.
func table(w io.Writer, head string, rows [][]string) error {
	var b bytes.Buffer
	columns := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(columns, strings.ReplaceAll(head, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = plain(cell)
		}
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// plain is a text of somebody's without what a terminal would act on.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// cells returns the rows of a query whose columns are all text.
func (s *session) cells(sql string, args ...any) ([][]string, error) {
	db, err := s.db()
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(s.ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
		cells := make([]string, len(row.FieldDescriptions()))
		to := make([]any, len(cells))
		for i := range cells {
			to[i] = &cells[i]
		}
		return cells, row.Scan(to...)
	})
}

func (s *session) stat(args []string) error {
	flags := s.flags("stat")
	whose := flags.String("u", "", "jobs of a `USER`, '*' of all; all that you may see without it")
	batch := flags.String("batch", "", "only those of the batch `NAME`")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		numbers, err := ids(flags.Args())
		if err != nil {
			return err
		}
		for _, id := range numbers {
			if err := s.detail(id); err != nil {
				return err
			}
		}
		return nil
	}
	if *whose == "*" {
		*whose = ""
	}
	rows, err := s.cells(`select id::text, left(coalesce(name, '-'), 12), left(owner, 10), left(queue, 10), state, priority::text,
		to_char(coalesce(started, submitted), 'MM-DD HH24:MI'), coalesce(left(host, 14), left(reason, 30), '-')
		from paddock.jobs(nullif($1, ''), nullif($2, ''))`, *whose, *batch)
	if err != nil || len(rows) == 0 {
		return err
	}
	return table(s.out, "ID NAME OWNER QUEUE STATE PRIO SINCE HOST", rows)
}

// detail shows all of a job.
func (s *session) detail(id int64) error {
	db, err := s.db()
	if err != nil {
		return err
	}
	var fields [][2]*string
	rows, err := db.Query(s.ctx, `select n.name, n.value from paddock.status($1) s,
		lateral (values ('job', s.id::text), ('owner', s.owner), ('queue', s.queue), ('state', s.state), ('outcome', s.outcome),
			('exit status', s.exit_code::text), ('signal', s.signal::text), ('reason', s.reason), ('failed', s.attempts::text),
			('evicted', s.evictions::text), ('host', s.host), ('slot', s.slot), ('submitted', to_char(s.submitted, 'YYYY-MM-DD HH24:MI:SS TZ')),
			('started', to_char(s.started, 'YYYY-MM-DD HH24:MI:SS TZ')), ('finished', to_char(s.finished, 'YYYY-MM-DD HH24:MI:SS TZ'))) n(name, value)`, id)
	if err != nil {
		return err
	}
	var name, value *string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		fields = append(fields, [2]*string{name, value})
		return nil
	}); err != nil {
		return err
	}
	if len(fields) == 0 {
		return fmt.Errorf("there is no job %d", id)
	}
	for _, f := range fields {
		if f[1] != nil {
			fmt.Fprintf(s.out, "%-12s %s\n", *f[0], plain(*f[1]))
		}
	}
	return nil
}

func (s *session) hosts(args []string) error {
	if err := s.alone(s.flags("hosts"), args); err != nil {
		return err
	}
	rows, err := s.cells(`select left(name, 30), left(version, 14), case when idle then 'yes' else 'no' end, running::text,
		to_char(seen, 'MM-DD HH24:MI:SS') from paddock.hosts order by name`)
	if err != nil {
		return err
	}
	return table(s.out, "HOST VERSION WAITS RUNNING SEEN", rows)
}

func (s *session) depths() error {
	rows, err := s.cells(`select left(queue, 20), case when paused then 'yes' else 'no' end, ready::text, waiting::text, held::text, blocked::text,
		running::text, coalesce(oldest_s::text, '-') from paddock.queue_depth order by queue`)
	if err != nil {
		return err
	}
	return table(s.out, "QUEUE PAUSED READY WAITING HELD BLOCKED RUNNING OLDEST(s)", rows)
}

func (s *session) top(args []string) error {
	flags := s.flags("top")
	times := flags.Int("n", 0, "how many `TIMES`; 0: until it is interrupted")
	seconds := flags.Int("s", 2, "`SECONDS` in between")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *seconds < 1 {
		return usagef("top takes no arguments, and at least a second")
	}
	for n := 1; ; n++ {
		if *times != 1 {
			fmt.Fprint(s.out, "\x1b[H\x1b[J")
		}
		if err := s.depths(); err != nil {
			return err
		}
		fmt.Fprintln(s.out)
		if err := s.hosts(nil); err != nil {
			return err
		}
		if n == *times {
			return nil
		}
		time.Sleep(time.Duration(*seconds) * time.Second)
	}
}

// doctor says what is wrong.
func (s *session) doctor(args []string) error {
	if err := s.alone(s.flags("doctor"), args); err != nil {
		return err
	}
	checks := []struct{ what, sql string }{
		{"a transaction holds back the removal of dead rows", `select format('pid %s of %s, for %s s: %s', pid, usename, seconds, query) from paddock.blockers`},
		{"commits are not on disk when they are answered", `select name || ' is ' || setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes') and setting = 'off'`},
		{"queue is paused", "select queue from paddock.queue_depth where paused"},
		{"nobody takes jobs", `select format('%s jobs are ready in %s', ready, queue) from paddock.queue_depth where ready > 0 and not exists (select from paddock.hosts)`},
		{"jobs have waited for an hour", "select format('%s: the next one waits for %s s', queue, oldest_s) from paddock.queue_depth where oldest_s > 3600 and not paused"},
		{"leases have not been renewed", "select format('job %s on %s, for %s s', id, host, extract(epoch from now() - until)::integer) from paddock.running where until < now() limit 10"},
		{"jobs failed for good in the last hour", "select format('%s on %s: %s of %s', queue, coalesce(host, '-'), failed, ended) from paddock.failures_1h where failed > 0"},
	}
	wrong := false
	for _, c := range checks {
		rows, err := s.cells(c.sql)
		if err != nil {
			return err
		}
		for _, row := range rows {
			wrong = true
			fmt.Fprintf(s.out, "%s: %s\n", c.what, plain(row[0]))
		}
	}
	if wrong {
		return exitError(1)
	}
	fmt.Fprintln(s.out, "nothing is wrong")
	return nil
}
