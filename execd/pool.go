package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"paddock/execd/internal/peer"
)

// pool makes the certificates by which hosts know each other. Words are what stands
// behind -pool, in the directory of the configuration.
func pool(dir, verb string, words []string) error {
	var roles peer.Role
	var names []string
	for _, word := range words {
		switch word {
		case "-submit":
			roles |= peer.Submit
		case "-execute":
			roles |= peer.Execute
		default:
			if word == "" || word[0] == '-' || len(names) > 0 {
				return cli.Exit(fmt.Sprintf("execd: unexpected argument %q; see execd -help", word), exitUsage)
			}
			names = append(names, word)
		}
	}
	name := ""
	if len(names) > 0 {
		name = names[0]
	}
	switch {
	case verb == "new":
		return newPool(dir, name, roles)
	case verb == "list" && name == "" && roles == 0:
	case verb == "host" && name != "" && roles == 0:
		return cli.Exit("execd: -pool host wants what the host may do: -submit, -execute or both", exitUsage)
	case verb == "host" && name != "":
	case verb == "revoke" && name != "" && roles == 0:
	default:
		return cli.Exit("execd: -pool is new [NAME], host NAME, revoke NAME or list; see execd -help", exitUsage)
	}
	p, err := peer.OpenPool(dir)
	if err != nil {
		return err
	}
	defer p.Close()
	switch verb {
	case "host":
		if _, err := unix.IoctlGetTermios(unix.Stdout, unix.TCGETS); err == nil {
			return cli.Exit("execd: -pool host prints a key, which is not for a terminal: see paddock-pool(7)", exitUsage)
		}
		text, err := p.Issue(name, roles)
		if err == nil {
			_, err = stdout.Write(text)
		}
		return err
	case "revoke":
		n, err := p.Revoke(name)
		if err == nil {
			fmt.Fprintf(&stdout, "%s: revoked: certificates=%d; the other hosts of the pool need this file\n", filepath.Join(dir, "peers"), n)
		}
		return err
	}
	list, err := p.Issued()
	if err != nil {
		return err
	}
	fmt.Fprintf(&stdout, "%-32s  %-24s  %-14s  %s\n", "SERIAL", "HOST", "ROLES", "UNTIL")
	for _, c := range list {
		state := c.Until.Local().Format(time.DateOnly)
		if c.Revoked {
			state = "revoked"
		}
		fmt.Fprintf(&stdout, "%-32s  %-24s  %-14s  %s\n", c.Serial, c.Name, c.Roles, state)
	}
	return nil
}

// newPool makes a pool, with this host as its first.
func newPool(dir, name string, roles peer.Role) error {
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("cannot get the name of this host: %w", err)
		}
		name = host
	}
	if roles == 0 {
		roles = peer.Submit
	}
	if err := peer.NewPool(dir, name, roles); err != nil {
		return err
	}
	fmt.Fprintf(&stdout, "%s: made: host=%s roles=%v\n", filepath.Join(dir, "pool"), name, roles)
	return nil
}
