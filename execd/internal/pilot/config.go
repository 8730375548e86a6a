package pilot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf/knob"
	"paddock/spool/atomicfile"
)

// minTime is how much time has to be left for work that does not say how much it needs, in
// seconds.
const minTime = 600

// vacateTime is what a job has to end when the pilot leaves, in seconds. Batch systems leave
// it 30 of them, and less than that for all.
const vacateTime = 10

// Dir returns the directory of a pilot, on the disk of its host.
func Dir(tmp string, a *Allocation) string {
	name := a.Job
	if name == "" {
		name = fmt.Sprint(os.Getpid())
	}
	return filepath.Join(tmp, "paddock."+filepath.Base(name))
}

// Configure writes the configuration of the execd in a directory: that in from, with one
// queue whose slot is the allocation. An allocation that is used until a time, zero for ever,
// takes no work that does not fit before.
func Configure(places *api.Places, from string, a *Allocation, until time.Time) error {
	hooks := filepath.Join(from, "hooks.conf")
	if _, err := os.Stat(hooks); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s does not exist: it says where the pilot gets its work from, see pilot(7)", hooks)
		}
		return err
	}
	if err := places.Prepare(false); err != nil {
		return err
	}
	if err := os.RemoveAll(places.Config); err != nil {
		return fmt.Errorf("cannot replace configuration: %w", err)
	}
	if err := os.CopyFS(places.Config, os.DirFS(from)); err != nil {
		return fmt.Errorf("cannot copy configuration %s: %w", from, err)
	}
	queues := filepath.Join(places.Config, "queues")
	if err := os.RemoveAll(queues); err != nil {
		return fmt.Errorf("cannot replace queues: %w", err)
	}
	if err := os.Mkdir(queues, 0o755); err != nil {
		return fmt.Errorf("cannot make configuration: %w", err)
	}
	queue := fmt.Sprintf("qname pilot.q\nslots %d\n", a.Cores)
	if len(a.GPUs) > 0 {
		queue += fmt.Sprintf("complex_values gpus=%d(%s)\n", len(a.GPUs), strings.Join(a.GPUs, " "))
		if err := countGPUs(filepath.Join(places.Config, "complexes")); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		filepath.Join(queues, "pilot.q"):           queue,
		filepath.Join(places.Config, "hooks.conf"): "include : " + hooks + "\n" + knobs(a, until),
	} {
		if err := atomicfile.Write(name, []byte(text), 0o600); err != nil {
			return fmt.Errorf("cannot write configuration: %w", err)
		}
	}
	return nil
}

// countGPUs has the resource gpus in the file of complexes, if the site has not.
func countGPUs(file string) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read configuration: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == "gpus" {
			return nil
		}
	}
	if err := atomicfile.Write(file, append(text, "\ngpus gpus RSMAP <= YES JOB 0 0\n"...), 0o600); err != nil {
		return fmt.Errorf("cannot write configuration: %w", err)
	}
	return nil
}

// Variables returns what hooks of a pilot find in their environment: the directory of its execd, which
// they may ask, and that by which a queue knows which of the pilots that it has asked for takes part.
func Variables(places *api.Places, a *Allocation, until time.Time) []string {
	v := []string{"PADDOCK_DIR=" + places.State}
	if a.Job != "" {
		v = append(v, "PADDOCK_PILOT_JOB="+a.Job)
	}
	if !until.IsZero() {
		v = append(v, fmt.Sprintf("PADDOCK_PILOT_END=%d", until.Unix()))
	}
	return v
}

// knobs returns those of a pilot, behind those of the site.
func knobs(a *Allocation, until time.Time) string {
	text := fmt.Sprintf(`PARTITIONABLE_QUEUES = *
MEMORY = %d
MachineMaxVacateTime = %d
%s = %s
%s = %s
STARTD_ATTRS = $(STARTD_ATTRS) %[3]s %[5]s
`, max(a.Memory>>20, 1), vacateTime, knob.Pilot, classad.String(a.Scheduler).Expr().OldString(), knob.PilotJob, classad.String(a.Job).Expr().OldString())
	if until.IsZero() {
		return text
	}
	// The slot asks for work as long as any could fit.
	return text + fmt.Sprintf(`%[1]s = %[2]d
TimeToLive = %[1]s - time()
STARTD_ATTRS = $(STARTD_ATTRS) %[1]s TimeToLive
START = ($(START:true)) && (TARGET.RequestCpus is undefined || (TARGET.RequestSeconds ?: TARGET.Requesth_rt ?: %[3]d) <= MY.TimeToLive)
`, knob.PilotEnd, until.Unix(), minTime)
}
