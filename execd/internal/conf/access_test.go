package conf

import "testing"

func TestMayUse(t *testing.T) {
	c := &Config{UserLists: map[string]*UserList{
		"staff":  {Name: "staff", ACL: true, Entries: []string{"alice", "@wheel"}},
		"banned": {Name: "banned", ACL: true, Entries: []string{"mallory"}},
		"dept":   {Name: "dept", Entries: []string{"alice", "bob"}},
	}}
	staff, banned := []string{"staff"}, []string{"banned"}
	for _, tt := range []struct {
		users, xusers []string
		name, group   string
		want          bool
	}{
		{nil, nil, "bob", "users", true},
		{staff, nil, "alice", "users", true},
		{staff, nil, "bob", "wheel", true},
		{staff, nil, "bob", "users", false},
		{staff, nil, "wheel", "users", false},
		{staff, nil, "@wheel", "users", true}, // no user has such a name
		{nil, banned, "mallory", "wheel", false},
		{staff, banned, "mallory", "wheel", false},
		{nil, banned, "bob", "users", true},
		{[]string{"dept"}, nil, "alice", "users", false},    // a department admits nobody
		{[]string{"missing"}, nil, "alice", "users", false}, // nor does what is not there
		{[]string{"missing", "staff"}, nil, "alice", "users", true},
	} {
		if got := c.MayUse(tt.users, tt.xusers, tt.name, tt.group); got != tt.want {
			t.Errorf("MayUse(%v, %v, %s, %s) = %v; want %v", tt.users, tt.xusers, tt.name, tt.group, got, tt.want)
		}
	}
}
