package conf

import "slices"

// MayProject reports whether lists of projects admit the jobs of a project, which is
// empty for jobs without one.
func MayProject(project string, projects, xprojects []string) bool {
	return (len(projects) == 0 || slices.Contains(projects, project)) && !slices.Contains(xprojects, project)
}

// MayUse reports whether user_lists and xuser_lists admit a user: one on a list of
// xusers is not admitted, and if there are lists of users, the user must be on one of
// them. groups is the primary group alone, as in Grid Engine, or all of the user's
// groups.
func (c *Config) MayUse(users, xusers []string, name string, groups ...string) bool {
	on := func(list string) bool {
		l := c.UserLists[list]
		return l != nil && l.ACL && (slices.Contains(l.Entries, name) ||
			slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(l.Entries, "@"+g) }))
	}
	return !slices.ContainsFunc(xusers, on) && (len(users) == 0 || slices.ContainsFunc(users, on))
}
