// Package account is qacct, which reads what finished jobs used from the accounting
// file. The program alone imports it.
package account

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Commands are the commands of this package.
var Commands = command.Table{option.Qacct: qacct}

// report is what the options of qacct ask for.
type report struct {
	file    string
	want    selection
	columns [len(sumColumns)]columnChoice
	listing bool // -j: the records
	// resources are those of -l, and offers the queues that have them; nil without -l.
	resources []api.Resource
	offers    offers
	json      bool
}

// qacct shows what finished jobs used. It reads the file, and needs execd only
// for -l and for host groups.
func qacct(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	r, err := parseReport(inv, settings)
	if err != nil {
		return err
	}
	if err := askQueues(ctx, inv, r); err != nil {
		return err
	}
	in, err := openAccounting(inv, r.file)
	if err != nil {
		return err
	}
	defer in.Close()
	found, lines, ignored := 0, 0, 0
	begun := false // a list of JSON
	total := newSums(&r.columns)
	use := func(d chunkResult) error {
		for _, b := range d.bad {
			fmt.Fprintf(inv.Err, "error: ignoring invalid entry in line %d of %s: %s\n", lines+b.line, api.Visible(r.file), api.Visible(b.err.Error()))
		}
		lines += d.lines
		found += d.found
		ignored += d.ignored
		total.merge(&d.sums)
		text := d.listing.Bytes()
		if r.json && len(text) > 0 && !begun {
			begun, text = true, append([]byte{'['}, text[1:]...)
		}
		if _, err := inv.Out.Write(text); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
		return nil
	}
	for _, span := range r.want.spans(in) {
		lines = span.Lines
		if err := accounting.Each(span, r.readChunk, use); err != nil {
			return err
		}
	}
	if ignored > 0 {
		fmt.Fprintf(inv.Err, "%d jobs ignored for accounting. Jobs' master queue no longer exists.\n\n", ignored)
	}
	if r.json && (r.want.name != "" || r.listed()) {
		endList(inv, begun)
	}
	switch {
	case r.want.name != "" && found == 0:
		return r.want.notFound()
	case r.want.name != "", r.json && r.listed():
	case r.json:
		return writeSums(inv, total)
	default:
		total.write(inv.Out)
	}
	return nil
}

// nextInList stands before each element of a list of JSON, whose first has a bracket
// in place of the comma.
const nextInList = ",\n"

// endList ends a list of JSON; begun says whether it has elements.
func endList(inv *command.Invocation, begun bool) {
	if begun {
		fmt.Fprint(inv.Out, "\n]\n")
	} else {
		fmt.Fprint(inv.Out, "[]\n")
	}
}

// listed reports whether records are shown: by -j, or by -json unless sums are
// asked for.
func (r *report) listed() bool {
	if r.listing || !r.json {
		return r.listing
	}
	for _, c := range r.columns {
		if c.shown {
			return false
		}
	}
	return true
}

// chunkResult is the result of reading a part of the file.
type chunkResult struct {
	lines   int // comments included
	bad     []badLine
	found   int
	ignored int          // jobs of queues that do not exist any more
	listing bytes.Buffer // records, ready to be printed
	sums    partSums
}

// badLine is a line that is not a record.
type badLine struct {
	line int // counted from 1
	err  error
}

// readChunk reads some lines of the file. Several goroutines call it at once.
func (r *report) readChunk(lines []byte) chunkResult {
	var d chunkResult
	var f accounting.Fields
	listed := r.listed()
	for len(lines) > 0 {
		line := lines
		whole := false
		if end := bytes.IndexByte(lines, '\n'); end >= 0 {
			line, lines, whole = lines[:end], lines[end+1:], true
		} else {
			lines = nil
		}
		d.lines++
		if len(line) < 2 || line[0] == '#' {
			continue
		}
		kept, err := r.want.keeps(line, &f)
		if kept && r.offers != nil {
			kept = d.offered(r.offers, &f)
		}
		if kept {
			err = d.add(r, &f, listed)
		}
		// A last line without a newline is still being written.
		if err != nil && (whole || len(line) > accounting.MaxLine) {
			d.bad = append(d.bad, badLine{d.lines, err})
		}
	}
	return d
}

// offered reports whether the queue of a line has the resources of -l. A job in
// another queue counts as found all the same.
func (d *chunkResult) offered(q offers, f *accounting.Fields) bool {
	offered, known := q[instanceOf(f)]
	if !known {
		d.ignored++
	}
	if !offered {
		d.found++
	}
	return offered
}

// add adds a line to the listing or to the sums.
func (d *chunkResult) add(r *report, f *accounting.Fields, listed bool) error {
	if listed {
		return d.list(r, f)
	}
	return d.sums.add(&r.columns, f)
}

// list adds a record to the listing, and to the sums as well when all jobs are listed.
func (d *chunkResult) list(r *report, f *accounting.Fields) error {
	record, err := f.Record()
	if err != nil {
		return err
	}
	d.found++
	if r.json {
		text, err := record.MarshalJSON()
		d.listing.WriteString(nextInList)
		d.listing.Write(api.VisibleJSON(text))
		return err
	}
	writeRecord(&d.listing, &record)
	if r.want.name != "" {
		return nil
	}
	return d.sums.add(&r.columns, f)
}

// parseReport reads the options of qacct.
func parseReport(inv *command.Invocation, settings []option.Setting) (*report, error) {
	r := &report{file: inv.Places.Accounting}
	var times period
	for i := range settings {
		o := &settings[i]
		if o.Option == nil {
			return nil, inv.NoOperand(o)
		}
		var err error
		switch o.Name {
		case "-b":
			times.begin, err = accountTime(o)
		case "-d":
			err = times.setDays(o)
		case "-e":
			times.end, err = accountTime(o)
		case "-E":
			r.want.byEnd = true
		case "-f":
			r.file = o.Value()
		case "-j":
			r.listing = true
			if len(o.Values) > 0 {
				err = r.want.job(o.Value())
			}
		case "-json":
			r.json = true
		case "-l":
			err = argument.AddResources(&r.resources, o)
		case "-m":
			r.want.masters = true
		case "-t":
			err = r.want.setTasks(o)
		default:
			err = r.choose(o)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(r.want.tasks) > 0 && r.want.name == "" {
		return nil, command.Failf("error: -t option requires -j option with an argument")
	}
	r.want.from, r.want.to = times.bounds(time.Now())
	r.want.columns = &r.columns
	return r, nil
}

// choose reads an option that makes a column of the sums.
func (r *report) choose(o *option.Setting) error {
	for i := range sumColumns {
		if sumColumns[i].option != o.Name && (o.Name != "-u" || sumColumns[i].option != "-o") {
			continue
		}
		r.columns[i].shown = true
		if len(o.Values) == 0 {
			return nil
		}
		return r.columns[i].set(&sumColumns[i], o, &r.columns[columnHost])
	}
	return fmt.Errorf("internal error: option %s", cmp.Or(o.Name, "without name"))
}
