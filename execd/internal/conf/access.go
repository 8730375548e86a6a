package conf

import "slices"

// MayProject reports whether lists of projects let the jobs of a project in; the
// project is empty for jobs without one.
func MayProject(project string, projects, xprojects []string) bool {
	return (len(projects) == 0 || slices.Contains(projects, project)) && !slices.Contains(xprojects, project)
}

// MayUse reports whether user_lists and xuser_lists let a user in: a user who is on a
// list of xusers may not, and if there are lists of users must be on one of them. The
// groups are the primary one alone, as in Grid Engine, or all of the user's.
func (c *Config) MayUse(users, xusers []string, name string, groups ...string) bool {
	on := func(list string) bool {
		l := c.UserLists[list]
		return l != nil && l.ACL && (slices.Contains(l.Entries, name) ||
			slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(l.Entries, "@"+g) }))
	}
	return !slices.ContainsFunc(xusers, on) && (len(users) == 0 || slices.ContainsFunc(users, on))
}
