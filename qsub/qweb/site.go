package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// page is all that a browser loads. What is below uplot is the files dist/uPlot.iife.min.js,
// dist/uPlot.min.css and LICENSE of the npm package uplot, version 1.6.32.
//
//go:embed page
var page embed.FS

// files are the files of the page by their paths, with their types.
var files = map[string]struct{ name, kind string }{
	"/":          {"index.html", "text/html; charset=utf-8"},
	"/style.css": {"style.css", "text/css; charset=utf-8"},
	"/app.js":    {"app.js", "text/javascript; charset=utf-8"},
	"/gantt.js":  {"gantt.js", "text/javascript; charset=utf-8"},
	"/uplot.js":  {"uplot/uplot.js", "text/javascript; charset=utf-8"},
	"/uplot.css": {"uplot/uplot.css", "text/css; charset=utf-8"},
}

// site is what the page is made from.
type site struct {
	client *api.Client
	hub    *hub
	// owner is whose output may be looked at; empty: nobody's, since who looks is not known.
	owner string
}

func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	for path, f := range files {
		if path == "/" {
			path = "/{$}"
		}
		mux.HandleFunc(path, asset(f.name, f.kind))
	}
	mux.HandleFunc("/api/live", s.live)
	mux.HandleFunc("/api/job", s.job)
	mux.HandleFunc("/api/output", s.output)
	return mux
}

// asset answers with a file of the page, which a browser keeps until it is another one.
func asset(name, kind string) http.HandlerFunc {
	text, err := page.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(text))
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "no-cache")
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text) // an error means that the browser has gone
	}
}

// sendTime is how long a viewer may take to read a message.
const sendTime = 30 * time.Second

// live sends messages, a line of JSON each, until its viewer goes.
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // a web server in front must not gather them
	c := s.hub.join()
	defer s.hub.leave(c)
	control := http.NewResponseController(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case text, ok := <-c:
			if !ok {
				return
			}
			_ = control.SetWriteDeadline(time.Now().Add(sendTime))
			if _, err := w.Write(text); err != nil {
				return
			}
			if control.Flush() != nil {
				return
			}
		}
	}
}

// jobView is what the page shows of a job: what qstat -j shows to everybody, without what it was
// submitted with that nobody looks at here.
type jobView struct {
	Job       int              `json:"job"`
	Name      string           `json:"name"`
	Owner     string           `json:"owner"`
	Group     string           `json:"group"`
	Submitted time.Time        `json:"submitted"`
	Pending   string           `json:"pending,omitempty"`
	Finished  int              `json:"finished"`
	Hard      []api.Resource   `json:"hard,omitempty"`
	Tasks     []api.TaskDetail `json:"tasks,omitempty"`
	Reasons   []string         `json:"reasons,omitempty"`
	Holds     string           `json:"holds,omitempty"`
	WaitsFor  []int            `json:"waits_for,omitempty"`
	// Over says that it is over, and nothing else is known of it.
	Over bool `json:"over,omitempty"`
	// Me is whose output may be looked at; empty: nobody's.
	Me string `json:"me,omitempty"`
}

// maxTasks is how many tasks of a job are shown.
const maxTasks = 20

func (s *site) job(w http.ResponseWriter, r *http.Request) {
	n := number(r, "job")
	var reply api.DetailReply
	if err := s.ask(r, api.VerbDetail, &api.DetailRequest{Jobs: []string{strconv.Itoa(n)}}, &reply); err != nil {
		refuse(w, err)
		return
	}
	if len(reply.Jobs) == 0 {
		answer(w, &jobView{Job: n, Over: true, Me: s.owner})
		return
	}
	d := &reply.Jobs[0]
	if len(d.Tasks) > maxTasks {
		task := number(r, "task")
		for i := range d.Tasks { // the one that is meant comes first
			if d.Tasks[i].Task == task {
				d.Tasks[0], d.Tasks[i] = d.Tasks[i], d.Tasks[0]
			}
		}
		d.Tasks = d.Tasks[:maxTasks]
	}
	for i := range d.Tasks {
		d.Tasks[i].MatchExp = nil
	}
	answer(w, &jobView{
		Job: d.Job, Name: d.Request.Name, Owner: d.Owner, Group: d.Group, Submitted: d.Submitted, Pending: d.Pending, Finished: d.Finished,
		Hard: d.Request.Hard, Tasks: d.Tasks, Reasons: d.Reasons, Holds: d.Holds, WaitsFor: d.WaitsFor, Me: s.owner,
	})
}

// tail is the end of what a task has written.
type tail struct {
	Path string `json:"path"`
	Text string `json:"text"`
	More bool   `json:"more,omitempty"` // there is more before it
	Why  string `json:"why,omitempty"`  // there is none
}

// maxTail is how much of it is shown, in bytes.
const maxTail = 16 << 10

// output answers with the end of the output of a task, to its owner alone, who opens the file.
func (s *site) output(w http.ResponseWriter, r *http.Request) {
	word := strconv.Itoa(number(r, "job"))
	if task := number(r, "task"); task > 0 {
		word += "." + strconv.Itoa(task)
	}
	if s.owner == "" {
		http.Error(w, "denied: output is shown to its owner alone, who starts a qweb", http.StatusForbidden)
		return
	}
	var reply api.OutputReply
	if err := s.ask(r, api.VerbOutput, &api.OutputRequest{Job: word}, &reply); err != nil {
		refuse(w, err)
		return
	}
	if reply.Owner != s.owner {
		http.Error(w, "denied: output is shown to its owner alone", http.StatusForbidden)
		return
	}
	if len(reply.Outputs) == 0 {
		answer(w, &tail{Why: "none yet"})
		return
	}
	t, err := read(&reply.Outputs[0].Stdout)
	if err != nil {
		t = &tail{Why: err.Error()}
	}
	answer(w, t)
}

// read returns the end of a file. What is no regular file is not opened: that might block.
func read(f *api.File) (*tail, error) {
	path := string(f.Path)
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, string(f.Name))
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	from := max(info.Size()-maxTail, 0)
	text, err := io.ReadAll(io.NewSectionReader(file, from, maxTail))
	if err != nil {
		return nil, err
	}
	return &tail{Path: path, Text: strings.ToValidUTF8(string(text), "\uFFFD"), More: from > 0}, nil
}

// ask asks execd for a browser.
func (s *site) ask(r *http.Request, verb string, request, reply any) error {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	return s.client.Call(ctx, verb, request, reply)
}

// refuse answers with an error of execd.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if e, ok := errors.AsType[*api.Error](err); ok {
		status = http.StatusNotFound
		if e.Code == api.CodeDenied {
			status = http.StatusForbidden
		}
	}
	http.Error(w, api.Visible(err.Error()), status)
}

func answer(w http.ResponseWriter, reply any) {
	text, err := json.Marshal(reply)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error means that the browser has gone
}
