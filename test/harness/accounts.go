package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// OtherAccounts makes a copy of /etc in dir, without an account and with others in
// its place: lines of passwd(5), each of which gets a group of its name and its gid.
// It returns a command line that has the program behind it see the copy as /etc, for
// Options.Via. The host's own accounts stay as they are, so that neither a run that
// was killed nor two runs at once can harm them. Needs root.
func OtherAccounts(dir, without string, lines ...string) (via []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// A user may be made meanwhile, by files that come and go.
	unlock, err := Lock(UsersLock)
	if err != nil {
		return nil, err
	}
	err = run("cp", "-a", "/etc/.", dir)
	unlock()
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, line := range lines {
		fields := strings.Split(line, ":")
		if len(fields) != 7 {
			return nil, fmt.Errorf("%q is no line of passwd", line)
		}
		groups = append(groups, fields[0]+":x:"+fields[3]+":")
	}
	for name, more := range map[string][]string{"passwd": lines, "group": groups} {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, without+":") {
				b.WriteString(line)
			}
		}
		for _, line := range more {
			b.WriteString(line + "\n")
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			return nil, err
		}
	}
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc && exec "$@"`, dir}, nil
}
