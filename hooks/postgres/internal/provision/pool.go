package provision

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Config is a pool as its file describes it.
type Config struct {
	Name      string // that of the file
	Scheduler string // see NewScheduler
	Submit    []string
	Queues    []string // whose jobs count; empty: those of all
	Pool
}

var poolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,40}$`)

// JobName is that of the pilots of the pool with their scheduler. It is what they are found by.
func (c *Config) JobName() string { return "paddock-" + c.Name }

// ReadConfig reads the file of a pool: on each line a name, blanks and a value. It is a file of
// the user whose jobs the pilots are, and no table: what it names is run as that user.
func ReadConfig(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read pool: %w", err)
	}
	defer f.Close()
	c := &Config{Name: filepath.Base(path), Pool: Pool{Grace: 2 * time.Minute, MaxPilots: 10, MaxQueued: 1}}
	if !poolName.MatchString(c.Name) {
		return nil, fmt.Errorf("%s: %q is no name of a pool", path, c.Name)
	}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if err := c.set(f[0], f[1:]); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read pool %s: %w", path, err)
	}
	for _, need := range []struct {
		name    string
		missing bool
	}{
		{"scheduler", c.Scheduler == ""},
		{"submit", len(c.Submit) == 0},
		{"cpus", c.Size.CPUs == 0},
		{"memory", c.Size.Memory == 0},
		{"seconds", c.Lasts == 0},
	} {
		if need.missing {
			return nil, fmt.Errorf("%s: %s is not set", path, need.name)
		}
	}
	if c.Usable() == 0 {
		return nil, fmt.Errorf("%s: grace is no less than seconds: no job would fit", path)
	}
	return c, nil
}

func (c *Config) set(name string, values []string) error {
	switch name {
	case "submit":
		c.Submit = values
		return nil
	case "queues":
		c.Queues = values
		return nil
	}
	if len(values) != 1 {
		return fmt.Errorf("%s has one value", name)
	}
	if name == "scheduler" {
		_, err := NewScheduler(values[0])
		c.Scheduler = values[0]
		return err
	}
	number := func(least, most int64) (int64, error) {
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%s %s: not a whole number from %d to %d", name, values[0], least, most)
		}
		return n, nil
	}
	var n int64
	var err error
	switch name {
	case "cpus":
		c.Size.CPUs, err = number(1, 1_000_000)
	case "memory":
		c.Size.Memory, err = number(1, 1_000_000_000_000)
	case "gpus":
		c.Size.GPUs, err = number(0, 1_000_000)
	case "seconds":
		n, err = number(60, 366*86400)
		c.Lasts = time.Duration(n) * time.Second
	case "grace":
		n, err = number(0, 86400)
		c.Grace = time.Duration(n) * time.Second
	case "max_pilots":
		n, err = number(0, 100_000)
		c.MaxPilots = int(n)
	case "max_queued":
		n, err = number(0, 1000)
		c.MaxQueued = int(n)
	default:
		return fmt.Errorf("there is no parameter %q", name)
	}
	return err
}
