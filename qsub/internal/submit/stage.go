package submit

import (
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// needSandbox gives a job a sandbox that says something of it. One that has said -sandbox n
// is refused by execd.
func (j *job) needSandbox() {
	if j.req.Sandbox == "" {
		j.req.Sandbox = api.SandboxYes
	}
}

// addStaged reads [NAME=]SOURCE,... of -stagein, or NAME[=DESTINATION],... of -stageout. An
// item replaces one of the same name.
func (j *job) addStaged(o *option.Setting) error {
	j.needSandbox()
	in := o.Name == string(api.FieldStageIn)
	list := &j.req.StageOut
	if in {
		list = &j.req.StageIn
	}
	wrong := func() error {
		form := "NAME[=DESTINATION]"
		if in {
			form = "[NAME=]SOURCE"
		}
		return o.Errorf(option.ExitValue, "Wrong list format \"%s\" specified to %s option, want %s,...", o.Value(), o.Name, form)
	}
	for item := range strings.SplitSeq(o.Value(), ",") {
		name, place, has := strings.Cut(item, "=")
		switch {
		case in && (!has || strings.Contains(name, "://")): // the equals sign is the URL's
			name, place = "", item
		case name == "" || has && place == "":
			return wrong()
		}
		if in && place == "" {
			return wrong()
		}
		*list = withStaged(*list, api.Staged{Name: api.Text(name), Place: api.Text(place)}, in)
	}
	return nil
}

// withStaged returns a list with an item in it.
func withStaged(list []api.Staged, s api.Staged, in bool) []api.Staged {
	key := func(s api.Staged) string {
		if in {
			return s.InSandbox()
		}
		return string(s.Name)
	}
	for i := range list {
		if key(list[i]) == key(s) {
			list[i] = s
			return list
		}
	}
	return append(list, s)
}

// setStageOutTo reads the directory of -stageout_to. One that is not absolute is below the
// working directory of the job.
func (j *job) setStageOutTo(o *option.Setting) error {
	j.needSandbox()
	if j.req.StageOutTo = o.Value(); j.req.StageOutTo == "" {
		return o.Errorf(option.ExitValue, "Wrong directory \"\" specified to -stageout_to option")
	}
	return nil
}
