package launch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/schedule"
)

// Devices returns the device nodes that belong to units of resources on this host, in the
// order of their paths, and what a job may do with each that was granted these units:
// nothing with a node of which it has no unit.
func Devices(c *conf.Config, debits []schedule.Debit) []conf.Device {
	byPath := map[string]conf.Device{}
	add := func(owner string, values conf.Values) {
		for name, v := range values {
			for id, nodes := range v.Devices {
				granted := slices.ContainsFunc(debits, func(d schedule.Debit) bool {
					return d.Name == name && d.Queue == owner && slices.Contains(d.IDs, id)
				})
				for _, node := range nodes {
					d := byPath[node.Path]
					byPath[node.Path] = conf.Device{
						Path: node.Path, Read: d.Read || granted && node.Read, Write: d.Write || granted && node.Write,
					}
				}
			}
		}
	}
	add("", c.Host)
	add("", c.AnyHost)
	for i := range c.Queues {
		add(c.Queues[i].Name, c.Queues[i].Complex)
	}
	list := slices.Collect(maps.Values(byPath))
	slices.SortFunc(list, func(a, b conf.Device) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// node finds out which device a path leads to.
func node(d conf.Device) (cgroup.Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(d.Path, &st); err != nil {
		return cgroup.Device{}, fmt.Errorf("device %s is not kept from any job: %w", d.Path, err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return cgroup.Device{}, fmt.Errorf("%s is not kept from any job: it is not a device", d.Path)
	}
	return cgroup.Device{
		Block: kind == unix.S_IFBLK, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev), Read: d.Read, Write: d.Write,
	}, nil
}

// nodes returns what a run may do with the devices of units. Two paths may lead
// to one device.
func (l *Launcher) nodes(o *Order) []cgroup.Device {
	var list []cgroup.Device
	if !l.Groups.Has("devices") {
		return nil // as the log has said
	}
	for _, d := range o.Devices {
		n, err := node(d)
		if err != nil {
			l.Log.Warn(fmt.Sprintf("job %v: %v", o.Task, err))
			continue
		}
		same := func(m cgroup.Device) bool { return m.Block == n.Block && m.Major == n.Major && m.Minor == n.Minor }
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].Read, list[i].Write = list[i].Read || n.Read, list[i].Write || n.Write
			continue
		}
		list = append(list, n)
	}
	return list
}

// DeviceProblems says which devices of units cannot be kept from jobs.
func DeviceProblems(c *conf.Config) (problems []string) {
	for _, d := range Devices(c, nil) {
		if _, err := node(d); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// ReportDevices tells the log which devices of units are kept from jobs without
// these units, if there are any.
func (l *Launcher) ReportDevices(c *conf.Config) {
	var paths []string
	for _, d := range Devices(c, nil) {
		paths = append(paths, d.Path)
	}
	text := strings.Join(paths, " ")
	switch {
	case len(paths) == 0:
		return
	case l.Foreign():
		l.Log.Warn(fmt.Sprintf("execd: devices are not kept from any job: the shepherd_cmd %s is not our own: %s", l.Shepherd, text))
		return
	case !l.Groups.Has("devices"):
		l.Log.Warn("execd: devices are not kept from any job: the control groups of this host cannot do that: " + text)
		return
	}
	l.Log.Info("execd: devices are kept from jobs that were not granted them: " + text)
	for _, p := range DeviceProblems(c) {
		l.Log.Warn("execd: " + p)
	}
}
