package people

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"paddock/hooks/postgres/internal/schema"
)

func (s *session) initialize(args []string) error {
	flags := s.flags("init")
	printOnly := flags.Bool("n", false, "print the SQL, as a script of psql, and do nothing")
	if err := s.alone(flags, args); err != nil {
		return err
	}
	if *printOnly {
		_, err := fmt.Fprint(s.out, schema.Script())
		return err
	}
	return s.bring("init")
}

func (s *session) migrate(args []string) error {
	if err := s.alone(s.flags("migrate"), args); err != nil {
		return err
	}
	return s.bring("migrate")
}

func (s *session) bring(word string) error {
	db, err := s.db()
	if err != nil {
		return err
	}
	was, err := schema.Version(s.ctx, db)
	if err != nil {
		return err
	}
	switch {
	case word == "migrate" && was == 0:
		return fmt.Errorf("there is no queue in this database; paddock-pg init makes one")
	case was > schema.Newest:
		return fmt.Errorf("the schema has version %d, and this program is for %d", was, schema.Newest)
	}
	made, err := schema.Migrate(s.ctx, db, schema.Newest)
	for _, n := range made {
		fmt.Fprintf(s.out, "migration %d made\n", n)
	}
	if err == nil && len(made) == 0 {
		fmt.Fprintf(s.out, "the schema has version %d, which is the newest\n", schema.Newest)
	}
	return err
}

func (s *session) queue(args []string) error {
	flags := s.flags("queue")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return s.depths()
	}
	settings := map[string]any{}
	for _, arg := range flags.Args()[1:] {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return usagef("%q is not PARAMETER=VALUE", arg)
		}
		settings[name] = value
		if name == "weight" && value == "strict" || name == "half_life" && value == "none" {
			settings[name] = nil
		}
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	rows, err := s.cells(`select n.name, n.value from paddock.set_queue($1, $2::text::jsonb) q,
		lateral (values ('name', q.name), ('paused', q.paused::text), ('weight', coalesce(q.weight::text, 'strict')), ('lease', q.lease::text),
			('grace', q.grace::text), ('max_attempts', q.max_attempts::text), ('max_evictions', q.max_evictions::text),
			('max_refusals', q.max_refusals::text), ('backoff', q.backoff::text), ('keep', q.keep::text), ('half_life', coalesce(q.half_life::text, 'none'))) n(name, value)`, flags.Arg(0), string(text))
	if err != nil {
		return err
	}
	for _, row := range rows {
		fmt.Fprintf(s.out, "%-13s %s\n", row[0], row[1])
	}
	return nil
}

// share shows or sets the shares of a queue.
func (s *session) share(args []string) error {
	flags := s.flags("share")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return usagef("which queue?")
	}
	type setting struct {
		owner string
		share int
	}
	var settings []setting
	for _, arg := range flags.Args()[1:] {
		owner, value, ok := strings.Cut(arg, "=")
		n, err := strconv.Atoi(value)
		if !ok || owner == "" || err != nil || n < 1 || n > 1_000_000 {
			return usagef("%q is not USER=SHARE, a number from 1 to 1000000", arg)
		}
		settings = append(settings, setting{owner, n})
	}
	db, err := s.db()
	if err != nil {
		return err
	}
	for _, o := range settings {
		if _, err := db.Exec(s.ctx, "select paddock.set_share($1, $2, $3)", flags.Arg(0), o.owner, o.share); err != nil {
			return err
		}
	}
	rows, err := s.cells(`select owner, share::text, round((used / 3600)::numeric, 2)::text, round((used / share / 3600)::numeric, 2)::text
		from paddock.shares where queue = $1 order by used / share, owner`, flags.Arg(0))
	if err != nil || len(rows) == 0 {
		return err
	}
	return table(s.out, "USER SHARE HOURS HOURS/SHARE", rows)
}

func (s *session) prune(args []string) error {
	flags := s.flags("prune")
	var age *time.Duration
	flags.Func("older", "those that ended `TIME` ago, as 720h; else as their queue says", func(text string) error {
		d, err := time.ParseDuration(text)
		if age = &d; err == nil && d < 0 {
			err = errors.New("it is in the future")
		}
		return err
	})
	if err := s.alone(flags, args); err != nil {
		return err
	}
	db, err := s.db()
	if err != nil {
		return err
	}
	var jobs, classes int64
	if err := db.QueryRow(s.ctx, "select jobs, classes from paddock.prune($1)", age).Scan(&jobs, &classes); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "removed: jobs=%d classes=%d\n", jobs, classes)
	return err
}
