package provision

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// patience is how long a command of a scheduler may take.
const patience = 30 * time.Second

// A Scheduler is the batch system that pilots are jobs of.
type Scheduler interface {
	// Submit runs the command that submits a job, with a name for the job, and returns its number.
	Submit(ctx context.Context, name string, command []string) (id string, err error)
	// States returns those of the jobs of this user and name that are not over. An error: it is
	// not known what there is.
	States(ctx context.Context, name string) (map[string]State, error)
	// Cancel removes a job that has not been started. False: it has been, and goes on.
	Cancel(ctx context.Context, name, id string) (bool, error)
}

// NewScheduler returns a scheduler by its name: slurm, or gridengine, which is also Paddock.
func NewScheduler(name string) (Scheduler, error) {
	switch name {
	case "slurm":
		return slurm{}, nil
	case "gridengine":
		return gridEngine{}, nil
	}
	return nil, fmt.Errorf("scheduler %q: neither slurm nor gridengine", name)
}

// with puts options before those of a command and its script.
func with(command []string, options ...string) []string {
	return slices.Concat(command[:1], options, command[1:])
}

// output runs a command and returns what it wrote.
func output(ctx context.Context, command ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %v", patience)
		}
		said, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		if said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return "", fmt.Errorf("%s: %w", command[0], err)
	}
	return string(out), nil
}

type slurm struct{}

// idOfSlurm is what sbatch --parsable prints: a number, and the cluster if there are several.
var idOfSlurm = regexp.MustCompile(`^([0-9]+)(;\S+)?\n?$`)

func (slurm) Submit(ctx context.Context, name string, command []string) (string, error) {
	out, err := output(ctx, with(command, "--parsable", "--job-name="+name)...)
	if err != nil {
		return "", err
	}
	m := idOfSlurm.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s printed %.80q, and no number alone", command[0], out)
	}
	return m[1], nil
}

// statesOfSlurm are those of squeue(1) in which a job waits, among those that it lists if it is
// not asked for others.
var statesOfSlurm = []string{"PD", "CF", "RF", "RH", "RQ", "SE", "RD"}

func (slurm) States(ctx context.Context, name string) (map[string]State, error) {
	out, err := output(ctx, "squeue", "--me", "--noheader", "--format=%i %t", "--name="+name)
	if err != nil {
		return nil, err
	}
	return parseSqueue(out)
}

func parseSqueue(out string) (map[string]State, error) {
	states := map[string]State{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("squeue printed %.80q, and no job and its state", line)
		}
		states[f[0]] = Running
		if slices.Contains(statesOfSlurm, f[1]) {
			states[f[0]] = Queued
		}
	}
	return states, nil
}

func (s slurm) Cancel(ctx context.Context, name, id string) (bool, error) {
	// It looks at the state and removes the job at once.
	if _, err := output(ctx, "scancel", "--state=PENDING", id); err != nil {
		return false, err
	}
	states, err := s.States(ctx, name)
	return states[id] == Over, err
}

type gridEngine struct{}

var idOfGridEngine = regexp.MustCompile(`^([0-9]+)\n?$`)

func (gridEngine) Submit(ctx context.Context, name string, command []string) (string, error) {
	out, err := output(ctx, with(command, "-terse", "-N", name)...)
	if err != nil {
		return "", err
	}
	m := idOfGridEngine.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s printed %.80q, and no number alone", command[0], out)
	}
	return m[1], nil
}

func (gridEngine) States(ctx context.Context, name string) (map[string]State, error) {
	out, err := output(ctx, "qstat", "-xml")
	if err != nil {
		return nil, err
	}
	return parseQstat(out, name)
}

func parseQstat(out, name string) (map[string]State, error) {
	var list struct {
		XMLName xml.Name `xml:"job_info"`
		Running struct {
			Jobs []listed `xml:"job_list"`
		} `xml:"queue_info"`
		Pending struct {
			Jobs []listed `xml:"job_list"`
		} `xml:"job_info"`
	}
	if err := xml.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("cannot read what qstat -xml printed: %w", err)
	}
	states := map[string]State{}
	for _, j := range slices.Concat(list.Running.Jobs, list.Pending.Jobs) {
		switch {
		case j.Number == "":
			return nil, errors.New("qstat -xml printed a job without a number")
		case j.Name != name:
		case j.State == "pending":
			states[j.Number] = Queued
		default:
			states[j.Number] = Running
		}
	}
	return states, nil
}

// listed is a job of qstat -xml.
type listed struct {
	State  string `xml:"state,attr"`
	Number string `xml:"JB_job_number"`
	Name   string `xml:"JB_name"`
}

func (g gridEngine) Cancel(ctx context.Context, name, id string) (bool, error) {
	// A job that is held is not started from here on: only then is it known whether it was.
	if _, err := output(ctx, "qhold", id); err != nil {
		return false, err
	}
	states, err := g.States(ctx, name)
	if err == nil && states[id] == Queued {
		_, err = output(ctx, "qdel", id)
		return err == nil, err
	}
	if _, released := output(ctx, "qrls", id); err == nil && states[id] == Running {
		err = released
	}
	return err == nil && states[id] == Over, err
}
