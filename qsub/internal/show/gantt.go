package show

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
)

// gantt is the slots of the host over time in characters, as qweb draws them.
type gantt struct {
	cursor string
	runs   map[[3]int]*api.TimelineRun // by job, task and run
	queues []api.TimelineQueue
	now    int64 // of execd, in milliseconds
}

// ganttWidths are the times that a chart may show.
var ganttWidths = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// take takes over what has changed, and forgets what is too old to be shown.
func (g *gantt) take(reply *api.TimelineReply) {
	if reply.Whole || g.runs == nil {
		g.runs = map[[3]int]*api.TimelineRun{}
	}
	for i := range reply.Runs {
		r := &reply.Runs[i]
		g.runs[[3]int{r.Job, r.Task, r.Run}] = r
	}
	g.cursor, g.queues, g.now = reply.Cursor, reply.Queues, reply.Now
	oldest := g.now - ganttWidths[len(ganttWidths)-1].Milliseconds()
	for key, r := range g.runs {
		if r.Over && g.end(r) < oldest {
			delete(g.runs, key)
		}
	}
}

func (g *gantt) end(r *api.TimelineRun) int64 {
	last := int64(0)
	for _, s := range r.Spans {
		last = max(last, cmp.Or(s.End, g.now))
	}
	return last
}

// ganttMarks are the characters of spans, those that cover others last. The number of the job
// stands in its run where there is room.
var ganttMarks = []struct {
	kind api.SpanKind
	mark rune
}{{api.SpanSlot, '.'}, {api.SpanOut, '>'}, {api.SpanIn, '<'}, {api.SpanHook, 'h'}, {api.SpanRun, '='}, {api.SpanSuspended, 's'}}

const ganttLegend = "= run  s suspended  < input  > output  h hook  . idle in slot  x failed"

// ganttLane is a slot.
type ganttLane struct {
	host, queue, slot string // another host; empty: this one
	cells             []rune
}

// lines draws the chart in so many columns: times, a line for each slot, and one for each slot of
// another host in which jobs of this one ran.
func (g *gantt) lines(columns int, width time.Duration) []string {
	const head = 14 // for the queue and the slot
	cells := max(columns-head, 10)
	lanes, at := []*ganttLane{}, map[[3]string]*ganttLane{}
	add := func(host, queue, slot string) *ganttLane {
		l := at[[3]string{host, queue, slot}]
		if l == nil {
			l = &ganttLane{host, queue, slot, []rune(strings.Repeat(" ", cells))}
			at[[3]string{host, queue, slot}] = l
			lanes = append(lanes, l)
		}
		return l
	}
	runs := make([]*api.TimelineRun, 0, len(g.runs))
	for _, r := range g.runs {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *api.TimelineRun) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Run, b.Run))
	})
	carved := map[[2]string]bool{} // slots of which others were carved
	for _, r := range runs {
		for slot := range strings.SplitSeq(r.Slots, ",") {
			if of, _, ok := strings.Cut(slot, "_"); ok && r.Host == "" {
				carved[[2]string{r.Queue, of}] = true
			}
		}
	}
	for _, q := range g.queues {
		for i := range q.Slots {
			if slot := strconv.Itoa(i + 1); !carved[[2]string{q.Name, slot}] {
				add("", q.Name, slot)
			}
		}
	}
	c := ganttScale{from: g.now - width.Milliseconds(), width: width.Milliseconds(), cells: int64(cells), now: g.now}
	var loose []*api.TimelineRun
	for _, r := range runs {
		first, last := c.reach(r)
		switch {
		case first > last:
		case r.Slots == "":
			loose = append(loose, r)
		default:
			for slot := range strings.SplitSeq(r.Slots, ",") {
				c.draw(add(r.Host, r.Queue, slot).cells, r)
			}
		}
	}
	for _, r := range loose { // in a slot that is free for as long
		first, last := c.reach(r)
		i := slices.IndexFunc(lanes, func(l *ganttLane) bool {
			return l.host == r.Host && l.queue == r.Queue && strings.TrimSpace(string(l.cells[first:last+1])) == ""
		})
		switch {
		case i >= 0:
			c.draw(lanes[i].cells, r)
		case r.Host != "":
			c.draw(add(r.Host, r.Queue, "?"+strconv.Itoa(len(lanes))).cells, r)
		}
	}
	order := map[string]int{}
	for i, q := range g.queues {
		order[q.Name] = i
	}
	slices.SortStableFunc(lanes, func(a, b *ganttLane) int {
		if a.host == "" && b.host == "" && a.queue != b.queue {
			return cmp.Compare(order[a.queue], order[b.queue])
		}
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.queue, b.queue), cmp.Compare(slotNumber(a.slot), slotNumber(b.slot)))
	})
	lines := []string{c.times(head)}
	last := ""
	for _, l := range lanes {
		name, slot := l.queue, strings.ReplaceAll(l.slot, "_", ".")
		if l.host != "" {
			name = "@" + l.host
		}
		if strings.HasPrefix(slot, "?") { // it is not known
			slot = "?"
		}
		shown := name
		if name == last {
			shown = ""
		}
		last = name
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%-7s %5s %s", cut(shown, 7), cut(slot, 5), string(l.cells)), " "))
	}
	return lines
}

// slotNumber puts slot 2_10 behind 2_9, both behind 1, and one that is not known behind all.
func slotNumber(slot string) int {
	if strings.HasPrefix(slot, "?") {
		return math.MaxInt
	}
	of, part, _ := strings.Cut(slot, "_")
	n, _ := strconv.Atoi(of)
	m, _ := strconv.Atoi(part)
	return n<<20 + m
}

// ganttScale is which times the cells of a chart are.
type ganttScale struct{ from, width, cells, now int64 }

func (c *ganttScale) cell(at int64) int { return int((at - c.from) * c.cells / c.width) }

// bounds returns the first and the last cell of a span, of which the first is larger if there is none.
func (c *ganttScale) bounds(s *api.Span) (first, last int) {
	end := cmp.Or(s.End, c.now)
	if end < c.from {
		return 1, 0
	}
	return max(c.cell(s.Begin), 0), min(max(c.cell(end-1), c.cell(s.Begin)), int(c.cells)-1)
}

// reach is bounds of a run as a whole.
func (c *ganttScale) reach(r *api.TimelineRun) (first, last int) {
	first, last = int(c.cells), -1
	for i := range r.Spans {
		if a, b := c.bounds(&r.Spans[i]); a <= b {
			first, last = min(first, a), max(last, b)
		}
	}
	return first, last
}

// draw draws a run. Output that travels covers nothing, since the next run may have the slot.
func (c *ganttScale) draw(cells []rune, r *api.TimelineRun) {
	for _, m := range ganttMarks {
		for i := range r.Spans {
			s := &r.Spans[i]
			first, last := c.bounds(s)
			if s.Kind != m.kind || first > last {
				continue
			}
			for k := first; k <= last; k++ {
				if m.kind != api.SpanOut || cells[k] == ' ' || cells[k] == '.' {
					cells[k] = m.mark
				}
			}
			if m.kind != api.SpanRun {
				continue
			}
			if r.Over && (r.Failed != 0 || r.Exit != 0) {
				cells[last] = 'x'
			}
			if number := []rune(strconv.Itoa(r.Job)); last-first > len(number) {
				copy(cells[first:], number)
			}
		}
	}
}

// times returns the line of times above the chart, which ends now.
func (c *ganttScale) times(head int) string {
	const every = 16 // columns
	form := "15:04"
	if c.width/c.cells*every < time.Minute.Milliseconds() {
		form = "15:04:05"
	}
	line := []rune(strings.Repeat(" ", head+int(c.cells)))
	for at := int64(0); at+int64(len(form)) <= c.cells; at += every {
		copy(line[head+int(at):], []rune(time.UnixMilli(c.from+at*c.width/c.cells).Format(form)))
	}
	return strings.TrimRight(string(line), " ")
}
