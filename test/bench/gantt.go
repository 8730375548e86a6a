package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// lanes are tasks in a picture, under a title.
type lanes struct {
	title string
	all   []course
}

// The picture in pixels.
const (
	ganttWidth  = 800
	ganttLeft   = 34 // of what is drawn
	ganttRight  = 16
	ganttTop    = 34
	ganttRow    = 5
	ganttTitle  = 30
	ganttBottom = 34
)

// gantt draws tasks one below the other, with one axis of time.
func gantt(parts []lanes) []byte {
	last, rows := time.Second, 0
	for _, p := range parts {
		last = max(last, span(p.all))
		rows += len(p.all)
	}
	last = last.Truncate(time.Second) + time.Second
	scale := float64(ganttWidth-ganttLeft-ganttRight) / last.Seconds()
	x := func(at time.Duration) float64 { return ganttLeft + at.Seconds()*scale }
	height := ganttTop + len(parts)*ganttTitle + rows*ganttRow + ganttBottom
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>When jobs ran and when their output travelled</title>
<style>
text { font: 12px sans-serif; fill: #24292f; }
.title { font-weight: bold; }
.number { fill: #57606a; }
.grid { stroke: #d0d7de; }
.run { fill: #1f6feb; }
.out { fill: #e08a1e; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.number { fill: #9198a1; }
.grid { stroke: #3d444d; }
.run { fill: #4493f8; }
.out { fill: #f0a63c; }
}
</style>
`, ganttWidth, height)
	fmt.Fprintf(&b, `<rect class="run" x="%d" y="10" width="14" height="10"/><text x="%d" y="19">a job runs</text>`+"\n", ganttLeft, ganttLeft+20)
	fmt.Fprintf(&b, `<rect class="out" x="%d" y="10" width="14" height="10"/><text x="%d" y="19">its output travels</text>`+"\n", ganttLeft+110, ganttLeft+130)
	y := ganttTop
	bottom := height - ganttBottom
	step := steps(last)
	for at := time.Duration(0); at <= last; at += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1[1]f" y1="%[2]d" y2="%[3]d"/><text class="number" x="%.1[1]f" y="%[4]d" text-anchor="middle">%[5]g s</text>`+"\n", x(at), y, bottom+4, bottom+18, at.Seconds())
	}
	for _, p := range parts {
		fmt.Fprintf(&b, `<text class="title" x="%d" y="%d">%s</text>`+"\n", ganttLeft, y+20, p.title)
		y += ganttTitle
		for i, c := range slices.SortedFunc(slices.Values(p.all), func(a, b course) int { return int(a.began - b.began) }) {
			if n := i + 1; n == 1 || n%10 == 0 {
				fmt.Fprintf(&b, `<text class="number" x="%d" y="%d" text-anchor="end">%d</text>`+"\n", ganttLeft-6, y+ganttRow, n)
			}
			for class, bar := range map[string][2]time.Duration{"run": {c.began, c.ended}, "out": {c.ended, c.arrived}} {
				fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", class, x(bar[0]), y, x(bar[1])-x(bar[0]), ganttRow-1)
			}
			y += ganttRow
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// steps returns what is between two numbers of an axis: ten of them at most.
func steps(last time.Duration) time.Duration {
	for _, s := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 50 * time.Second} {
		if last <= 10*s {
			return s
		}
	}
	return 100 * time.Second
}
