package launch

import (
	"path/filepath"
	"strconv"
	"strings"
)

// names are the values of the pseudo variables in paths (qsub(1), -e).
type names struct {
	home, user, jobName, host string
	job, task                 int // task 0: no array
}

// expand replaces the pseudo variables of qsub's paths. As in Grid Engine the
// names are compared as prefixes ($USERX is the user and an X), $$ is a dollar
// sign, and what is not known stays.
func (n names) expand(text string) string {
	if text == "~" || strings.HasPrefix(text, "~/") {
		text = n.home + text[1:]
	}
	variables := []struct{ name, value string }{
		{"HOME", n.home},
		{"USER", n.user},
		{"JOB_ID", strconv.Itoa(n.job)},
		{"JOB_NAME", n.jobName},
		{"HOSTNAME", n.host},
		{"TASK_ID", strconv.Itoa(n.task)},
		{"$", "$"},
	}
	var b strings.Builder
next:
	for text != "" {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			break
		}
		text = after
		for _, v := range variables {
			if rest, ok := strings.CutPrefix(after, v.name); ok {
				b.WriteString(v.value)
				text = rest
				continue next
			}
		}
		b.WriteByte('$')
	}
	return b.String()
}

// choose picks the entry of a list host:path,host2:path2,path3 that is meant
// for this host: the one that names it, else the first that names none.
func choose(list, host string) string {
	fallback, found := "", false
	for entry := range strings.SplitSeq(list, ",") {
		h, path, has := strings.Cut(entry, ":")
		switch {
		case has && (h == host || shortName(h) == shortName(host)):
			return path
		case has && h == "": // ":path" as the old clients write it
			if !found {
				fallback, found = path, true
			}
		case !has && !found:
			fallback, found = entry, true
		}
	}
	return fallback
}

func shortName(host string) string {
	short, _, _ := strings.Cut(host, ".")
	return short
}

// stream returns the path of one of the job's streams: as requested, absolute
// against dir, or what stands for it when nothing was requested.
func (n names) stream(requested, dir, otherwise string) string {
	path := choose(requested, n.host)
	if path == "" {
		return otherwise
	}
	path = n.expand(path)
	if !filepath.IsAbs(path) {
		slash := "" // it says that the path is a directory's, and no file is made of that name
		if strings.HasSuffix(path, "/") {
			slash = "/"
		}
		path = filepath.Join(dir, path) + slash
	}
	return path
}
