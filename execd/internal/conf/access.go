package conf

import "slices"

// MayUse reports whether user_lists and xuser_lists let a user in: one who is
// on a list of xusers is not, and where there are users one must be on a list
// of them. group is the user's primary group, as in Grid Engine.
func (c *Config) MayUse(users, xusers []string, name, group string) bool {
	on := func(list string) bool {
		l := c.UserLists[list]
		return l != nil && l.ACL && (slices.Contains(l.Entries, name) || slices.Contains(l.Entries, "@"+group))
	}
	return !slices.ContainsFunc(xusers, on) && (len(users) == 0 || slices.ContainsFunc(users, on))
}
