package conf

import (
	"slices"
	"strings"

	"paddock/execd/api"
)

// staff adds a manager or an operator, or removes one.
func (e *edit) staff() error {
	about := speech[e.Kind]
	if checkName("", e.Name) != nil {
		return rejected("%q is not a name of a user", e.Name)
	}
	path := e.path(e.Kind, "")
	data, err := e.read(path)
	if err != nil {
		return err
	}
	has := slices.Contains(e.old.List(e.Kind), e.Name)
	switch {
	case e.Action == api.ConfigureAdd && has:
		return rejected("%s %q already exists", about.object, e.Name)
	case e.Action == api.ConfigureAdd:
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		e.done("added", "%q to %s", e.Name, about.list)
		return e.put(path, append(data, e.Name+"\n"...))
	case e.Action != api.ConfigureRemove:
		return rejected("a %s can be added and removed", about.object)
	case e.Name == "root":
		return rejected("may not remove user %q from %s", e.Name, about.list)
	case !has:
		return e.absent(about.object)
	}
	if data, err = rewrite(data, map[string]string{e.Name: ""}); err != nil {
		return err
	}
	e.done("removed", "%q from %s", e.Name, about.list)
	return e.put(path, data)
}

// members adds users to a user list, or removes them.
func (e *edit) members() error {
	if e.Kind != kindUserList {
		return rejected("%q is no list of users", e.Kind)
	}
	if err := e.checkName(); err != nil {
		return err
	}
	add := e.Action == api.ConfigureAdmit
	if !add && !e.there() {
		return api.Errorf(api.CodeNotFound, "access list %q doesn't exist", e.Name)
	}
	users := e.old.words(kindUserList, e.Name, "entries")
	for user := range strings.FieldsSeq(e.Text) {
		i := slices.Index(users, user)
		switch {
		case checkName("", strings.TrimPrefix(user, "@")) != nil:
			return rejected("%q is not a name of a user or of a @group", user)
		case add && i >= 0:
			e.fails("%q is already in access list %q", user, e.Name)
		case add:
			users = append(users, user)
			e.tell("%s %q to access list %q", e.verb("added"), user, e.Name)
		case i < 0:
			e.fails("user %q is not in access list %q", user, e.Name)
		default:
			users = slices.Delete(users, i, i+1)
			e.tell("%s user %q from access list %q", e.verb("deleted"), user, e.Name)
		}
	}
	set := map[string]string{"entries": "NONE"}
	if len(users) > 0 {
		set["entries"] = strings.Join(users, ",")
	}
	if slices.Equal(users, e.old.words(kindUserList, e.Name, "entries")) {
		return nil
	}
	return e.set(set)
}
