// Package pilot runs an execd as a job of a batch system: it finds out what was allocated to
// that job and until when, writes the configuration of an execd of that size, and says when
// that execd is to take no more work and when it is to leave. See pilot(7).
//
// Only main imports it. It speaks with the execd by the API, as any client.
package pilot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/spool"
)

// Allocation is what a batch system gives to a job on this host.
type Allocation struct {
	Scheduler string // slurm, ge, or none if there is no batch system
	Job       string // its number there; empty: there is no batch system
	Cores     int
	Memory    int64     // bytes
	End       time.Time // when it is killed; zero: not known
	GPUs      []string  // what CUDA calls those that it has: numbers, or names that begin with GPU- or MIG-
}

// Names of the schedulers.
const (
	slurm = "slurm"
	ge    = "ge"
	none  = "none"
)

// Host is what is known of the host, and of the process, beside the batch system.
type Host struct {
	Env   func(name string) string
	Read  func(path string) ([]byte, error)
	Mtime func(path string) (time.Time, error)
	// Ask calls a program of the batch system, and returns what it prints.
	Ask    func(name string, args ...string) (string, error)
	Cores  int   // that the process may run on
	Memory int64 // bytes of the host
}

// Find returns the allocation that this process is in. What several sources say, the smallest
// counts of. end, if it is not zero, is when the allocation is over, whatever they say. The
// warnings tell of what could not be found out.
func Find(h *Host, end time.Time) (a Allocation, warnings []string) {
	a = Allocation{Scheduler: none, Cores: h.Cores, Memory: h.Memory}
	a.groups(h)
	switch {
	case h.Env("SLURM_JOB_ID") != "":
		a.Scheduler, a.Job = slurm, h.Env("SLURM_JOB_ID")
		warnings = a.slurm(h)
	case h.Env("JOB_ID") != "" && h.Env("SGE_JOB_SPOOL_DIR") != "":
		a.Scheduler, a.Job = ge, h.Env("JOB_ID")
		if task := h.Env("SGE_TASK_ID"); task != "" && task != "undefined" {
			a.Job += "." + task
		}
		warnings = a.gridEngine(h)
	}
	if gpus, text := a.gpus(h); text != "" {
		warnings = append(warnings, text)
	} else {
		a.GPUs = gpus
	}
	if !end.IsZero() {
		a.End = end
	}
	if a.End.IsZero() {
		warnings = append(warnings, "it is not known when the allocation ends: no work is refused for its length; see -end")
	}
	return a, warnings
}

func (a *Allocation) cores(n int64) {
	if n > 0 && n < int64(a.Cores) {
		a.Cores = int(n)
	}
}

func (a *Allocation) memory(n int64) {
	if n > 0 && n < a.Memory {
		a.Memory = n
	}
}

func (a *Allocation) ends(t time.Time) {
	if a.End.IsZero() || t.Before(a.End) {
		a.End = t
	}
}

// gpu is what CUDA calls one.
var gpu = regexp.MustCompile(`^([0-9]{1,4}|(GPU|MIG)-[A-Za-z0-9/-]{1,100})$`)

// gpus reads which GPUs the process may use; the warning says why that is not known. Grid Engine
// names them as the site does, by words that may end with their numbers.
func (a *Allocation) gpus(h *Host) (names []string, warning string) {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SGE_HGR_gpu", "SGE_HGR_gpus"} {
		text := h.Env(name)
		if text == "" {
			continue
		}
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			if strings.HasPrefix(name, "SGE_") {
				word = word[len(strings.TrimRight(word, "0123456789")):]
			}
			if !gpu.MatchString(word) || slices.Contains(names, word) || len(names) == maxGPUs {
				return nil, fmt.Sprintf("%s is %.80q, by which no GPU is known", name, text)
			}
			names = append(names, word)
		}
		return names, ""
	}
	return nil, ""
}

// maxGPUs bounds those of a host.
const maxGPUs = 1000

// slurm reads the environment of a job of Slurm. Memory is in megabytes there.
func (a *Allocation) slurm(h *Host) (warnings []string) {
	number := func(name string) int64 {
		text := h.Env(name)
		if text == "" {
			return 0
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>20 {
			warnings = append(warnings, fmt.Sprintf("%s is %.40q, which is no number", name, text))
			return 0
		}
		return n
	}
	a.cores(number("SLURM_CPUS_ON_NODE"))
	a.memory(number("SLURM_MEM_PER_NODE") << 20)
	if each := number("SLURM_MEM_PER_CPU"); each <= math.MaxInt64>>20/int64(max(a.Cores, 1)) {
		a.memory(each * int64(a.Cores) << 20)
	}
	if end := number("SLURM_JOB_END_TIME"); end > 0 {
		a.ends(time.Unix(end, 0))
		return warnings
	}
	// Earlier versions do not tell their jobs.
	text, err := h.Ask("squeue", "--noheader", "--jobs="+a.Job, "--format=%e")
	if err == nil {
		var t time.Time
		var has bool
		if t, has, err = slurmTime(text); has {
			a.ends(t)
		}
	}
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("cannot ask Slurm when the job ends: %v", err))
	}
	return warnings
}

// slurmTime reads a time as squeue prints it; false: the job has no end.
func slurmTime(text string) (t time.Time, has bool, err error) {
	switch text = strings.TrimSpace(text); strings.ToUpper(text) {
	case "NOTSET", "N/A", "NONE", "UNKNOWN", "UNLIMITED":
		return t, false, nil
	}
	if t, err = time.ParseInLocation("2006-01-02T15:04:05", text, time.Local); err != nil {
		return time.Time{}, false, fmt.Errorf("%.40q is no time", text)
	}
	return t, true, nil
}

// gridEngine reads the environment and the job directory of a job of Grid Engine, or of ours.
func (a *Allocation) gridEngine(h *Host) (warnings []string) {
	slots, err := strconv.ParseInt(h.Env("NSLOTS"), 10, 32)
	if err != nil || slots < 1 {
		slots = 1
	}
	a.cores(slots)
	name := path.Join(h.Env("SGE_JOB_SPOOL_DIR"), spool.FileConfig)
	text, err := h.Read(name)
	began, timeErr := h.Mtime(name)
	if err = errors.Join(err, timeErr); err != nil {
		return []string{fmt.Sprintf("cannot read the limits of the job: %v", err)}
	}
	ends := func(text string) (has bool) {
		n, has := amount(text)
		if has = has && n < 1e9; has {
			a.ends(began.Add(time.Duration(n * float64(time.Second))))
		}
		return has
	}
	known := false // by a job directory of Paddock
	for _, key := range []string{spool.KeyHRT, spool.KeySRT, spool.KeyForeignHRT, spool.KeyForeignSRT} {
		known = ends(configured(text, key)) || known
	}
	if !known {
		said, err := h.Ask("qstat", "-j", h.Env("JOB_ID"))
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("cannot ask Grid Engine when the job ends: %v", err))
		}
		for _, request := range requested(said) {
			if name, value, _ := strings.Cut(request, "="); name == "h_rt" || name == "s_rt" {
				ends(value)
			}
		}
	}
	for _, key := range []string{"h_vmem", "s_vmem", "h_rss"} {
		if n, ok := amount(configured(text, key)); ok && n*float64(slots) < 1<<62 {
			a.memory(int64(n) * slots)
		}
	}
	return warnings
}

// requested returns the hard requests in what qstat -j prints of a job.
func requested(text string) []string {
	for line := range strings.Lines(text) {
		if list, ok := strings.CutPrefix(line, "hard resource_list:"); ok {
			return strings.Split(strings.TrimSpace(list), ",")
		}
	}
	return nil
}

// configured returns the value of a key in the file config.
func configured(text []byte, key string) string {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && name == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// amount reads a limit as Grid Engine writes it: seconds, h:m:s, or bytes with a unit; false:
// there is none.
func amount(text string) (n float64, ok bool) {
	if strings.Contains(text, ":") {
		for part := range strings.SplitSeq(text, ":") {
			x, err := strconv.ParseUint(part, 10, 32)
			if err != nil {
				return 0, false
			}
			n = n*60 + float64(x)
		}
		return n, strings.Count(text, ":") == 2 && n > 0
	}
	unit := 1.0
	if i := strings.IndexAny(text, "kKmMgG"); i >= 0 && i == len(text)-1 {
		unit = map[byte]float64{'k': 1e3, 'K': 1 << 10, 'm': 1e6, 'M': 1 << 20, 'g': 1e9, 'G': 1 << 30}[text[i]]
		text = text[:i]
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n <= 0 || n >= 1<<63 {
		return 0, false // INFINITY, among others
	}
	return n * unit, true
}

// groups reads the limits of the control groups that the process is in.
func (a *Allocation) groups(h *Host) {
	text, err := h.Read("/proc/self/cgroup")
	if err != nil {
		return
	}
	number := func(name string) int64 {
		limit, err := h.Read(name)
		if err != nil {
			return 0
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64)
		if err != nil {
			return 0 // max
		}
		return n
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, below, ok := strings.Cut(rest, ":")
		if !ok || !path.IsAbs(below) {
			continue
		}
		for at := path.Clean(below); ; at = path.Dir(at) {
			switch controllers {
			case "":
				for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
					a.memory(number(path.Join(root, at, "memory.max")))
					a.quota(h, path.Join(root, at, "cpu.max"))
				}
			case "memory":
				a.memory(number(path.Join("/sys/fs/cgroup/memory", at, "memory.limit_in_bytes")))
			}
			if at == "/" {
				break
			}
		}
	}
}

// quota reads cpu.max, which has the processor time and the period in which it may be used.
func (a *Allocation) quota(h *Host, name string) {
	text, err := h.Read(name)
	if err != nil {
		return
	}
	var of, period int64
	if n, err := fmt.Sscanf(string(text), "%d %d", &of, &period); n == 2 && err == nil && of > 0 && period > 0 {
		a.cores(max(of/period, 1))
	}
}
