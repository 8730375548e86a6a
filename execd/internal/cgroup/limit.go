package cgroup

import (
	"fmt"
	"math"
	"path"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// devices is a controller of version 1; version 2 has programs instead that the kernel
// runs when a node is opened.
const devices = "devices"

// Device is a device node whose use is limited.
type Device struct {
	Block        bool // else it is a character device
	Major, Minor uint32
	Read, Write  bool // what is allowed; neither: it cannot be opened at all
}

// The period is the kernel's default, in microseconds. weight and shares are its
// defaults for a group in version 2 and 1.
const (
	cpuPeriod = 100_000
	weight    = 100
	maxWeight = 10_000
	shares    = 1024
	maxShares = 1 << 18
)

// signed returns a limit in the type that the library has for it.
func signed(limit uint64) *int64 { return new(int64(min(limit, math.MaxInt64))) }

// rules denies what is not allowed of devices.
func rules(list []Device) []specs.LinuxDeviceCgroup {
	var all []specs.LinuxDeviceCgroup
	for _, d := range list {
		r := specs.LinuxDeviceCgroup{Type: "c", Major: new(int64(d.Major)), Minor: new(int64(d.Minor)), Access: "m"} // to make another node of it
		if d.Block {
			r.Type = "b"
		}
		if !d.Read {
			r.Access += "r"
		}
		if !d.Write {
			r.Access += "w"
		}
		all = append(all, r)
	}
	return all
}

// rulesV2 is rules for a group of version 2, where what no rule allows is denied: the
// first rule, which is asked last, allows every device. The kernel keeps the program
// made of them as long as there is the group.
func rulesV2(list []Device) []specs.LinuxDeviceCgroup {
	all := specs.LinuxDeviceCgroup{Allow: true, Type: "a", Major: new(int64(-1)), Minor: new(int64(-1)), Access: "rwm"}
	return append([]specs.LinuxDeviceCgroup{all}, rules(list)...)
}

// resourcesV2 are the limits of a run as a whole in version 2.
func (h *hierarchy) resourcesV2(l Limits) *cgroup2.Resources {
	r := &cgroup2.Resources{CPU: &cgroup2.CPU{}}
	if h.with("memory") && l.Memory > 0 {
		r.Memory = &cgroup2.Memory{Max: signed(l.Memory)}
		if h.swap {
			r.Memory.Swap = new(int64(0)) // resident and swap are one limit
		}
	}
	if h.with("cpu") && l.CPUs > 0 {
		r.CPU.Max = cgroup2.NewCPUMax(new(int64(l.CPUs)*cpuPeriod), new(uint64(cpuPeriod)))
	}
	if h.with("cpu") && l.Weight > 0 {
		r.CPU.Weight = new(uint64(min(l.Weight*weight, maxWeight)))
	}
	if h.with(devices) && len(l.Devices) > 0 {
		r.Devices = rulesV2(l.Devices)
	}
	return r
}

// resourcesOfJob are the limits of the job alone in version 2.
func (h *hierarchy) resourcesOfJob(l Limits) *cgroup2.Resources {
	r := &cgroup2.Resources{}
	if h.with("memory") {
		// Half a job is worth nothing, and would have no reason to end.
		r.Memory = &cgroup2.Memory{OOMGroup: new(true)}
	}
	if h.with("pids") && l.Procs > 0 {
		// The method that is to end a job which has used up its number must still be
		// started.
		r.Pids = &cgroup2.Pids{Max: *signed(l.Procs)}
	}
	return r
}

// manager returns the library's view of a group of version 2.
func (h *hierarchy) manager(dir string) (*cgroup2.Manager, error) {
	return cgroup2.Load(path.Join("/", dir), cgroup2.WithMountpoint(h.mount))
}

// set limits a group of version 2.
func (h *hierarchy) set(dir string, r *cgroup2.Resources) error {
	m, err := h.manager(dir)
	if err == nil {
		err = m.Update(r)
	}
	if err != nil {
		return fmt.Errorf("cannot set control group: %w", err)
	}
	return nil
}

// subsystemsV1 returns the library's subsystems for the controllers of a hierarchy of
// version 1. Of memory only the needed figures are read: not every host counts the
// kernel's, and memory with swap is one figure.
func (h *hierarchy) subsystemsV1() []cgroup1.Subsystem {
	unread := []string{"kmem", "kmem.tcp", "memsw"}
	if h.swap {
		unread[2] = ""
	}
	made := map[string]cgroup1.Subsystem{
		"memory": cgroup1.NewMemory(h.mount, cgroup1.IgnoreModules(unread...)), "pids": cgroup1.NewPids(h.mount),
		"cpu": cgroup1.NewCpu(h.mount), "cpuacct": cgroup1.NewCpuacct(h.mount), devices: cgroup1.NewDevices(h.mount),
	}
	var all []cgroup1.Subsystem
	for _, c := range h.has {
		all = append(all, made[c])
	}
	return all
}

// inV1 returns a group as the library wants it, which takes a hierarchy to be mounted
// under the name of its controller, below the given root.
func (h *hierarchy) inV1(dir string) (cgroup1.Path, cgroup1.InitOpts) {
	return cgroup1.StaticPath(path.Join("..", dir)), cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return h.subsystems, nil })
}

// limitV1 limits the group of a job in a hierarchy of version 1, as far as that
// has controllers for it.
func (h *hierarchy) limitV1(dir string, l Limits) error {
	r := &specs.LinuxResources{CPU: &specs.LinuxCPU{}, Devices: rules(l.Devices)}
	if l.Memory > 0 {
		r.Memory = &specs.LinuxMemory{Limit: signed(l.Memory)}
		if h.swap {
			r.Memory.Swap = r.Memory.Limit // resident and swap together
		}
	}
	if l.Procs > 0 {
		r.Pids = &specs.LinuxPids{Limit: signed(l.Procs)}
	}
	if l.CPUs > 0 {
		r.CPU.Period, r.CPU.Quota = new(uint64(cpuPeriod)), new(int64(l.CPUs)*cpuPeriod)
	}
	if l.Weight > 0 {
		r.CPU.Shares = new(uint64(min(l.Weight*shares, maxShares)))
	}
	where, hierarchy := h.inV1(dir)
	if _, err := cgroup1.New(where, r, hierarchy); err != nil {
		return fmt.Errorf("cannot set control group: %w", err)
	}
	return nil
}
