package engine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// defaultConfig is where the configuration of a host is, and userConfig where it is below the home of a user whose
// host has none.
const (
	defaultConfig = "/etc/paddock/postgres.conf"
	userConfig    = ".config/paddock/postgres.conf"
)

// Config is what a host is told of the database. Hooks have an environment of their own, so that it is a file.
type Config struct {
	Connection  string   // as libpq has it, without a password
	Queues      []string // whose jobs the host takes; empty: of all
	Connections int      // at the same time, besides the one that listens
	Listen      bool     // to be woken up; without it the database is asked every ten seconds
	Host        string
	Renew       []string // the command that has execd ask RENEW_CLAIM at once
	Pilot       Pilot
}

// Pilot is what an execd says by the environment of its hooks that is a pilot; see pilot(7).
type Pilot struct {
	Job  string    // its number with the batch system whose job it is; empty: it is no pilot
	Ends time.Time // when it has to have left; zero: it may stay
}

// readPilot reads the environment.
func readPilot() (Pilot, error) {
	p := Pilot{Job: os.Getenv("PADDOCK_PILOT_JOB")}
	if p.Job == "" {
		return p, nil
	}
	if !hostName.MatchString(p.Job) {
		return p, fmt.Errorf("PADDOCK_PILOT_JOB %q is no number of a job", p.Job)
	}
	if end := os.Getenv("PADDOCK_PILOT_END"); end != "" {
		at, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return p, fmt.Errorf("PADDOCK_PILOT_END %q is no time in seconds", end)
		}
		p.Ends = time.Unix(at, 0)
	}
	return p, nil
}

var (
	hostName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)
	queueName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// ReadConfig reads a configuration: on each line a name, blanks and a value. Without a path it is where such files are.
func ReadConfig(path string) (*Config, error) {
	if path == "" {
		path = defaultConfig
		if home := os.Getenv("HOME"); home != "" && os.Getuid() != 0 {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				path = filepath.Join(home, userConfig)
			}
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	defer f.Close()
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	pilot, err := readPilot()
	if err != nil {
		return nil, err
	}
	if pilot.Job != "" {
		host += "." + pilot.Job // there may be several on one host
	}
	c := &Config{Connections: 2, Listen: true, Host: host, Renew: []string{"execd", "-renew"}, Pilot: pilot}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.Fields(line)[0]
		if err := c.set(name, strings.TrimSpace(line[len(name):])); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read configuration %s: %w", path, err)
	}
	if err := CheckConnection(c.Connection); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *Config) set(name, value string) error {
	switch name {
	case "connection":
		c.Connection = value
	case "queues":
		c.Queues = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		for _, q := range c.Queues {
			if !queueName.MatchString(q) {
				return fmt.Errorf("%q is no name of a queue", q)
			}
		}
	case "connections":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 16 {
			return fmt.Errorf("connections %q: not a number from 1 to 16", value)
		}
		c.Connections = n
	case "listen":
		if value != "on" && value != "off" {
			return fmt.Errorf("listen %q: neither on nor off", value)
		}
		c.Listen = value == "on"
	case "host":
		if !hostName.MatchString(value) {
			return fmt.Errorf("%q is no name of a host", value)
		}
		c.Host = value
	case "renew":
		if c.Renew = strings.Fields(value); len(c.Renew) == 0 {
			return errors.New("renew needs a command")
		}
	default:
		return fmt.Errorf("there is no parameter %q", name)
	}
	return nil
}

var password = regexp.MustCompile(`(?i)(^|[\s?&])password\s*=|://[^/@]*:[^/@]*@`)

// CheckConnection refuses a connection string with a password, which does not belong where everybody who looks
// at processes or at this file reads it.
func CheckConnection(s string) error {
	if password.MatchString(s) {
		return errors.New("the connection has a password: put that into a file of mode 0600, and say passfile=FILE")
	}
	return nil
}
