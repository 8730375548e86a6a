package account

import (
	"bytes"
	"fmt"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// selection says which lines are wanted. With columns, the zero value chooses all.
type selection struct {
	name    string // a job's number, name or pattern
	pattern string // of the name, in the syntax of package path
	number  []byte // the number as it stands in the file, or nil
	prefix  []byte // of a name, up to its first pattern sign
	exact   bool   // prefix is the whole name
	tasks   []api.Tasks
	from    *int64 // start time, in seconds since the epoch; nil: any
	to      *int64
	byEnd   bool // -E: from and to are compared with the end time
	masters bool // -m
	columns *[len(sumColumns)]columnChoice
}

// job reads the argument of -j: a number, perhaps with a task, a name or a pattern.
func (s *selection) job(text string) error {
	s.name, s.number, s.prefix, s.exact = text, nil, nil, false
	if number, task, ok := strings.Cut(text, "."); ok && argument.IsNumber(number) && argument.IsNumber(task) {
		n, err := strconv.Atoi(task)
		if err != nil || n == 0 {
			return command.Failf("error: job id %s not found", text)
		}
		s.name, s.tasks = number, []api.Tasks{{First: n, Last: n, Step: 1}}
	}
	if argument.IsNumber(s.name) {
		s.number = []byte(s.name)
		return nil
	}
	// An empty name matches no job.
	s.pattern = shellPattern(s.name)
	if _, err := path.Match(s.pattern, ""); err != nil || s.name == "" {
		return command.Failf("error: job name %s not found", api.Visible(s.name))
	}
	end := strings.IndexAny(s.pattern, `*?[\`)
	s.exact = end < 0
	if s.exact {
		end = len(s.pattern)
	}
	s.prefix = []byte(s.pattern[:end])
	return nil
}

// shellPattern makes a pattern of the shell's, which negates by !, one of package
// path.
func shellPattern(text string) string { return strings.ReplaceAll(text, "[!", "[^") }

// setTasks reads -t, here a list of ranges.
func (s *selection) setTasks(o *option.Setting) error {
	s.tasks = nil
	for text := range strings.SplitSeq(o.Value(), ",") {
		t, err := argument.TaskRange(o, text)
		if err != nil {
			return o.Errorf(option.ExitFailed, "invalid list of task id ranges: %s", o.Value())
		}
		s.tasks = append(s.tasks, t)
	}
	return nil
}

// notFound is the error of a job that has no line.
func (s *selection) notFound() error {
	text := "error: job id " + s.name + " not found"
	switch {
	case len(s.tasks) > 0:
		job := s.name
		if s.number == nil {
			job = `"` + api.Visible(job) + `"`
		}
		ranges := make([]string, len(s.tasks))
		for i, t := range s.tasks {
			ranges[i] = t.String()
		}
		text = fmt.Sprintf("error: Job-array tasks %s.%s not found", job, strings.Join(ranges, ","))
	case s.number == nil:
		text = "error: job name " + api.Visible(s.name) + " not found"
	}
	return command.Failf("%s", text)
}

// keeps reports whether a line is wanted, and if so splits it into f. A file
// may have millions of lines, most of them about other jobs: these are not
// split. The error is one of the line.
func (s *selection) keeps(line []byte, f *accounting.Fields) (bool, error) {
	if s.name != "" {
		field := accounting.FieldJobName
		if s.number != nil {
			field = accounting.FieldJobNumber
		}
		text := accounting.Field(line, field)
		if text == nil {
			return false, f.Split(line)
		}
		if !s.isJob(text) {
			return false, nil
		}
	}
	if err := f.Split(line); err != nil {
		return false, err
	}
	if s.masters && string(f.Text(accounting.FieldPETaskID)) != accounting.None {
		return false, nil
	}
	for i := range s.columns {
		if !s.columns[i].keeps(&sumColumns[i], f) {
			return false, nil
		}
	}
	if ok, err := s.hasTask(f); !ok || err != nil {
		return false, err
	}
	return s.inTime(f)
}

func (s *selection) isJob(text []byte) bool {
	if s.number != nil {
		return bytes.Equal(text, s.number)
	}
	if s.exact {
		return bytes.Equal(text, s.prefix)
	}
	if !bytes.HasPrefix(text, s.prefix) {
		return false
	}
	ok, err := path.Match(s.pattern, string(text))
	return ok && err == nil
}

func (s *selection) hasTask(f *accounting.Fields) (bool, error) {
	if len(s.tasks) == 0 {
		return true, nil
	}
	n, err := f.Number(accounting.FieldTaskNumber)
	for _, t := range s.tasks {
		if t.Has(int(n)) {
			return true, err
		}
	}
	return false, err
}

func (s *selection) inTime(f *accounting.Fields) (bool, error) {
	if s.from == nil && s.to == nil {
		return true, nil
	}
	field := accounting.FieldStartTime
	if s.byEnd {
		field = accounting.FieldEndTime
	}
	n, err := f.Number(field)
	at := int64(n)
	return (s.from == nil || at >= *s.from) && (s.to == nil || at <= *s.to), err
}

// keeps reports whether a line has the value that the column's option asks for.
func (c *columnChoice) keeps(column *sumColumn, f *accounting.Fields) bool {
	switch {
	case c.pattern != nil:
		return c.pattern.matches(f)
	case !c.given:
		return true
	}
	text := f.Text(column.field)
	if column.numeric {
		n, err := strconv.Atoi(string(text))
		return err == nil && n == c.number
	}
	if column.field == accounting.FieldHostname {
		return strings.EqualFold(string(text), c.value)
	}
	return string(text) == c.value
}

// set reads the argument of the column's option.
func (c *columnChoice) set(column *sumColumn, o *option.Setting, host *columnChoice) error {
	value := o.Value()
	switch column.field {
	case accounting.FieldQName:
		pattern, err := parseQueuePattern(value)
		if err != nil {
			return o.Errorf(option.ExitFailed, "invalid option argument \"%s %s\"", o.Name, value)
		}
		c.pattern, host.shown = pattern, true
		return nil
	case accounting.FieldGroup:
		if argument.IsNumber(value) {
			value = groupName(value)
		}
	}
	if column.numeric {
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil && o.Name == "-ar" {
			return o.Errorf(option.ExitFailed, "invalid advance reservation id, must be an unsigned integer")
		}
		if err != nil {
			return o.Errorf(option.ExitFailed, "invalid option argument \"%s %s\"", o.Name, value)
		}
		c.number, value = int(n), strconv.FormatUint(n, 10)
	}
	c.given, c.value = true, value
	return nil
}

// groupName returns the name of a group, or its number if it has none. Package
// os/user does not help: without cgo it reads only /etc/group.
func groupName(number string) string {
	line, err := exec.Command("getent", "group", number).Output()
	name, _, ok := strings.Cut(string(line), ":")
	if err != nil || !ok {
		return number
	}
	return name
}

// queuePattern is the argument of -q: a pattern of a queue's name, of queue@host
// or of queue@@hostgroup.
type queuePattern struct {
	queue, host string
	instances   map[string]bool // those of the host group
}

func parseQueuePattern(text string) (*queuePattern, error) {
	queue, host, _ := strings.Cut(shellPattern(text), "@")
	if host == "" {
		host = "*"
	}
	_, err := path.Match(queue, "")
	if err == nil {
		_, err = path.Match(host, "")
	}
	return &queuePattern{queue: queue, host: host}, err
}

func (p *queuePattern) matches(f *accounting.Fields) bool {
	if p.instances != nil {
		return p.instances[instanceOf(f)]
	}
	queue, err1 := path.Match(p.queue, string(f.Text(accounting.FieldQName)))
	host, err2 := path.Match(p.host, string(f.Text(accounting.FieldHostname)))
	return queue && host && err1 == nil && err2 == nil
}

// period is the time that -b, -e and -d give.
type period struct {
	begin, end *int64 // seconds since the epoch
	days       *int64
}

// accountTime reads -b and -e.
func accountTime(o *option.Setting) (*int64, error) {
	t, err := argument.Date(o.Value(), time.Now())
	if err != nil {
		return nil, &option.Error{Text: err.Error(), Hint: `Type "qacct -help" for the options.`}
	}
	seconds := t.Unix()
	return &seconds, nil
}

// maxDays bounds -d, so that its seconds do not overflow.
const maxDays = 1_000_000_000

// setDays reads -d.
func (p *period) setDays(o *option.Setting) error {
	n, err := strconv.ParseUint(o.Value(), 10, 63)
	if err != nil || n > maxDays {
		return o.Errorf(option.ExitFailed, "invalid option argument \"-d %s\"", o.Value())
	}
	days := int64(n)
	p.days = &days
	return nil
}

// bounds returns the first and the last second. Days count from the beginning
// if it is given, else back from the end, else back from now.
func (p *period) bounds(now time.Time) (from, to *int64) {
	from, to = p.begin, p.end
	if p.days == nil {
		return from, to
	}
	const day = 24 * 60 * 60
	span := *p.days * day
	switch {
	case from != nil && to == nil:
		end := *from + span
		to = &end
	case to != nil && from == nil:
		begin := *to - span
		from = &begin
	case from == nil:
		begin := now.Unix() - span
		from = &begin
	}
	return from, to
}
