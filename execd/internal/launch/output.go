package launch

import (
	"fmt"
	"path/filepath"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Streams are what the paths of a job's standard streams are made from, for
// those who ask where its output is.
type Streams struct {
	Job    int      `json:"job"`
	Owner  string   `json:"owner"`
	UID    int      `json:"uid"`
	Home   api.Text `json:"home"`
	Name   api.Text `json:"name"`
	Cwd    api.Text `json:"cwd,omitempty"`
	Stdout api.Text `json:"stdout,omitempty"`
	Stderr api.Text `json:"stderr,omitempty"`
	Merge  bool     `json:"merge,omitempty"`
	Array  bool     `json:"array,omitempty"`
	// HomeJob and HomeTask are the numbers in the names of files of a job of another host; 0:
	// it is of none, and the second if it is no array there.
	HomeJob  int `json:"home_job,omitempty"`
	HomeTask int `json:"home_task,omitempty"`
}

// StreamsOf returns what is to be known of a job that has not begun.
func StreamsOf(number int, r *api.SubmitRequest, owner *user.User) Streams {
	return streamsOf(number, r, owner, "$TMPDIR")
}

// Streams returns what is to be known of the job, once its TMPDIR is made.
func (o *Order) Streams() Streams {
	return streamsOf(o.Task.Job.Number, o.Request, o.Owner, o.tmpdir())
}

func streamsOf(number int, r *api.SubmitRequest, owner *user.User, scratch string) Streams {
	s := Streams{
		Job: number, Owner: owner.Name, UID: owner.UID, Home: api.Text(owner.Home), Name: api.Text(r.Name), Cwd: api.Text(cwd(r, scratch)),
		Stdout: api.Text(r.Stdout), Stderr: api.Text(r.Stderr), Merge: r.Merge, Array: r.Tasks.IsArray(),
	}
	if w := r.Work; w != nil && w.Activation != nil && w.Activation.Home != nil {
		s.HomeJob, s.HomeTask = w.Activation.Home.Job, taskNumber(*w.Activation.Home)
	}
	return s
}

// numbers returns those in the names of the files of a task, which is 0 for no array.
func (s *Streams) numbers(task int) (job, number int) {
	if s.HomeJob != 0 {
		return s.HomeJob, s.HomeTask
	}
	return s.Job, task
}

// Output returns where a task of the job writes on a host: what its config
// says, or will say.
func (s *Streams) Output(host string, task int) api.Output {
	if !s.Array {
		task = 0
	}
	n, dir := s.names(host, task), s.Dir(host, task)
	return s.output(task, n.stream(string(s.Stdout), dir, dir), n.stream(string(s.Stderr), dir, dir))
}

// Dir returns the working directory of a task of the job on a host.
func (s *Streams) Dir(host string, task int) string {
	return workingDir(s.names(host, task), string(s.Cwd))
}

func (s *Streams) names(host string, task int) names {
	if !s.Array {
		task = 0
	}
	number, task := s.numbers(task)
	return names{home: string(s.Home), user: s.Owner, jobName: string(s.Name), host: host, job: number, task: task}
}

func (s *Streams) output(task int, stdout, stderr string) api.Output {
	number, shown := s.numbers(task)
	file := func(letter, path string) api.File {
		return api.File{Path: api.Text(path), Name: api.Text(defaultName(string(s.Name), letter, number, shown))}
	}
	return api.Output{Task: task, Merged: s.Merge, Stdout: file("o", stdout), Stderr: file("e", stderr)}
}

// Paths are those that a job names, for one task.
type Paths struct {
	Dir   string // where the job was to run without a sandbox: relative paths begin there
	names names
}

// PathsOf returns those of a task.
func PathsOf(t *job.Task, r *api.SubmitRequest, owner *user.User, host string) Paths {
	s := StreamsOf(t.Job.Number, r, owner)
	return Paths{Dir: s.Dir(host, t.Number), names: s.names(host, t.Number)}
}

// Expand replaces the pseudo variables in a path.
func (p *Paths) Expand(path string) string { return p.names.expand(path) }

// Stdin returns the file of -i; empty: there is none.
func (p *Paths) Stdin(r *api.SubmitRequest) string { return p.names.stream(r.Stdin, p.Dir, "") }

// Output returns where a run writes, or has written, from its config; false: it
// has none any more.
func (r *Runs) Output(run spool.RunID) (api.Output, bool) {
	d, _, err := r.Find(run)
	if err != nil {
		return api.Output{}, false
	}
	c, err := d.Config()
	if err != nil {
		return api.Output{}, false
	}
	stdout, _ := c.Lookup(spool.KeyStdoutPath)
	stderr, _ := c.Lookup(spool.KeyStderrPath)
	name, _ := c.Lookup(spool.KeyJobName)
	job, _ := c.Int(spool.KeyJobID)
	task, _ := c.Int(spool.KeyTaskID)
	s := Streams{Job: job, Name: api.Text(name)}
	s.Merge, _ = c.Bool(spool.KeyMergeStderr)
	return s.output(task, stdout, stderr), true
}

// workingDir is the directory that a job asked for, else the owner's home.
func workingDir(n names, cwd string) string {
	if cwd == "" {
		return n.home
	}
	dir := n.expand(cwd)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(n.home, dir)
	}
	return dir
}

// defaultName is the name of a stream's file in a directory.
func defaultName(name, letter string, job, task int) string {
	file := fmt.Sprintf("%s.%s%d", name, letter, job)
	if task > 0 {
		file += fmt.Sprintf(".%d", task)
	}
	return file
}
