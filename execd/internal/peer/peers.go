package peer

import (
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
)

// Role is what a host may do in a pool. A host may have several.
type Role uint8

// The roles.
const (
	Submit  Role = 1 << iota // its users may run work on other hosts
	Execute                  // it runs work of other hosts
)

// roleWord is a role as it is written in files and certificates.
type roleWord struct {
	role Role
	word string
}

var roleWords = []roleWord{{Submit, "submit"}, {Execute, "execute"}}

// String returns the words of the roles, with commas between them.
func (r Role) String() string {
	var words []string
	for _, w := range roleWords {
		if r&w.role != 0 {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ",")
}

// parseRoles reads words with commas between them.
func parseRoles(text string) (r Role, ok bool) {
	for word := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(roleWords, func(w roleWord) bool { return w.word == word })
		if i < 0 {
			return 0, false
		}
		r |= roleWords[i].role
	}
	return r, true
}

// DefaultPort is where hosts listen that say nothing else: the port that the Internet
// Assigned Numbers Authority has given to sge_execd.
const DefaultPort = "6445"

// Peer is another host, as a line of the file peers describes it.
type Peer struct {
	Name    string
	Address string // host and port
	Roles   Role
	Zstd    bool // what travels to it and from it is compressed
	users   users
}

// users says whose work a host may bring.
type users struct {
	patterns []string          // of path.Match; with a ! before them those that are refused
	names    map[string]string // here, by their names there; nil: the same
}

// Local returns the name here of a user there; false: he may have no work here.
func (p *Peer) Local(name string) (string, bool) {
	if p.users.names != nil {
		local, ok := p.users.names[name]
		return local, ok
	}
	ok := false
	for _, pattern := range p.users.patterns {
		bare, denied := strings.CutPrefix(pattern, "!")
		if match, err := path.Match(bare, name); err == nil && match {
			if denied {
				return "", false
			}
			ok = true
		}
	}
	return name, ok
}

// everybody is whose work a host may bring that says nothing of it.
var everybody = users{patterns: []string{"*", "!root"}}

// Peers is the file peers.
type Peers struct {
	list    []Peer
	byName  map[string]int  // places in list
	revoked map[string]bool // serial numbers, in hexadecimal
}

// isEmpty reports whether the file says nothing, or is not there.
func (p *Peers) isEmpty() bool { return p == nil || len(p.list)+len(p.revoked) == 0 }

// These bound the file.
const (
	maxFile  = 1 << 20
	maxPeers = 10000
)

// problems collects what is wrong with a file.
type problems struct {
	file string
	list []error
}

func (p *problems) add(line int, format string, args ...any) {
	p.list = append(p.list, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

// parsePeers reads the file peers. namesOf reads a file of names that it refers to. The
// error has all mistakes, a line each, with file and line.
func parsePeers(file string, data []byte, namesOf func(name string) (map[string]string, error)) (*Peers, error) {
	p := &Peers{byName: map[string]int{}, revoked: map[string]bool{}}
	wrong := problems{file: file}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		words := fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "revoked":
			if err := p.revoke(words[1:]); err != nil {
				wrong.add(number, "%v", err)
			}
		default:
			if err := p.add(words, namesOf); err != nil {
				wrong.add(number, "%v", err)
			}
		}
	}
	return p, errors.Join(wrong.list...)
}

// fields returns the words of a line without its comment.
func fields(line string) []string {
	line, _, _ = strings.Cut(line, "#")
	return strings.Fields(line)
}

// revoke reads the words behind "revoked".
func (p *Peers) revoke(words []string) error {
	if len(words) != 1 {
		return errors.New("want revoked and one serial number")
	}
	serial := strings.TrimLeft(strings.ToLower(words[0]), "0")
	if strings.Trim(serial, "0123456789abcdef") != "" || len(serial) > 40 {
		return fmt.Errorf("%q is no serial number in hexadecimal", api.Short(words[0]))
	}
	p.revoked[serial] = true
	return nil
}

// add reads the line of a host, or of several.
func (p *Peers) add(words []string, namesOf func(string) (map[string]string, error)) error {
	names, err := expand(words[0])
	if err != nil {
		return err
	}
	words = words[1:]
	address := ""
	if len(words) > 0 && strings.Contains(words[0], ":") && !strings.Contains(words[0], "=") {
		address, words = words[0], words[1:]
	}
	host, port, err := splitAddress(address)
	if err != nil {
		return err
	}
	if host != "" && len(names) > 1 {
		return fmt.Errorf("%d hosts cannot have one address, %q", len(names), api.Short(address))
	}
	if len(words) == 0 {
		return errors.New("want what the host may do: submit, execute or submit,execute")
	}
	roles, ok := parseRoles(words[0])
	if !ok {
		return fmt.Errorf("%q is not what a host may do: submit, execute or submit,execute", api.Short(words[0]))
	}
	line := Peer{Roles: roles, users: everybody}
	for i, word := range words[1:] {
		name, value, ok := strings.Cut(word, "=")
		of := optionRoles[name]
		switch {
		case !ok || of == 0:
			return fmt.Errorf("%q is not known here", api.Short(word))
		case slices.ContainsFunc(words[1:1+i], func(w string) bool { return strings.HasPrefix(w, name+"=") }):
			return fmt.Errorf("%s= is there twice", name)
		case roles&of == 0:
			return fmt.Errorf("%s= belongs to hosts that may %v", name, of)
		case name == "users":
			line.users, err = parseUsers(value, namesOf)
		default:
			line.Zstd, err = parseYes(value)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, twice := p.byName[name]; twice {
			return fmt.Errorf("host %s has a line already", name)
		}
		if len(p.list) == maxPeers {
			return fmt.Errorf("more than %d hosts", maxPeers)
		}
		at := host
		if at == "" {
			at = name
		}
		p.byName[name] = len(p.list)
		line.Name, line.Address = name, net.JoinHostPort(at, port)
		p.list = append(p.list, line)
	}
	return nil
}

// optionRoles are the words of a line that have a value, and of hosts with which role they are.
var optionRoles = map[string]Role{"users": Submit, "zstd": Execute}

// parseYes reads yes or no.
func parseYes(text string) (yes bool, err error) {
	if text != "yes" && text != "no" {
		err = fmt.Errorf("%q is neither yes nor no", api.Short(text))
	}
	return text == "yes", err
}

// splitAddress reads an address: a port behind a colon, with a host before it or none.
func splitAddress(text string) (host, port string, err error) {
	if text == "" {
		return "", DefaultPort, nil
	}
	host, port, err = net.SplitHostPort(text)
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(port, 10, 16); n == 0 && err == nil {
			err = strconv.ErrRange
		}
	}
	if err != nil || strings.ContainsAny(host, "/@%") {
		return "", "", fmt.Errorf("%q is no address: host and port with a colon between them", api.Short(text))
	}
	return host, port, nil
}

// parseUsers reads what stands behind users=.
func parseUsers(text string, namesOf func(string) (map[string]string, error)) (u users, err error) {
	if file, ok := strings.CutPrefix(text, "map:"); ok {
		if file == "" || strings.ContainsAny(file, "/\x00") || file[0] == '.' {
			return u, fmt.Errorf("%q is not the name of a file beside this one", api.Short(file))
		}
		u.names, err = namesOf(file)
		return u, err
	}
	for pattern := range strings.SplitSeq(text, ",") {
		bare := strings.TrimPrefix(pattern, "!")
		if _, err := path.Match(bare, ""); err != nil || bare == "" {
			return u, fmt.Errorf("%q is no name of a user, and no pattern", api.Short(pattern))
		}
		u.patterns = append(u.patterns, pattern)
	}
	return u, nil
}

// parseNames reads a file of names: in each line that of a user there, and the one here.
func parseNames(file string, data []byte) (map[string]string, error) {
	names := map[string]string{}
	wrong := problems{file: file}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		words := fields(line)
		switch {
		case len(words) == 0:
		case len(words) != 2:
			wrong.add(number, "want two names: of a user there, and of him here")
		case names[words[0]] != "":
			wrong.add(number, "user %q has a line already", api.Short(words[0]))
		default:
			names[words[0]] = words[1]
		}
	}
	return names, errors.Join(wrong.list...)
}

// expand returns the names of hosts that a word stands for: node[1-8] for eight, and
// node[01-12] for twelve whose numbers have two digits.
func expand(word string) ([]string, error) {
	bad := fmt.Errorf("%q is no name of a host", api.Short(word))
	before, rest, ranged := strings.Cut(strings.ToLower(word), "[")
	if !ranged {
		if !isHostname(before) {
			return nil, bad
		}
		return []string{before}, nil
	}
	numbers, after, closed := strings.Cut(rest, "]")
	from, to, dash := strings.Cut(numbers, "-")
	first, err1 := strconv.ParseUint(from, 10, 31)
	last, err2 := strconv.ParseUint(to, 10, 31)
	switch {
	case !closed || !dash || err1 != nil || err2 != nil || len(from) > len(to):
		return nil, bad
	case last < first || last-first >= maxPeers:
		return nil, fmt.Errorf("%q: from %d to %d are no numbers of hosts", api.Short(word), first, last)
	}
	var names []string
	for n := first; n <= last; n++ {
		name := fmt.Sprintf("%s%0*d%s", before, len(from), n, after)
		if !isHostname(name) {
			return nil, bad
		}
		names = append(names, name)
	}
	return names, nil
}

// isHostname reports whether a name in small letters can be that of a host.
func isHostname(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// find returns the line of a host; nil: it has none.
func (p *Peers) find(name string) *Peer {
	if i, ok := p.byName[strings.ToLower(name)]; ok {
		return &p.list[i]
	}
	return nil
}
