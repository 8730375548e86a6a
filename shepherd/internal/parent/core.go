package parent

import (
	"os"
	"strconv"
	"strings"

	"paddock/spool"
)

// core says where the kernel has put the core dump of a process of the run in
// dir.
func core(dir spool.Dir, pid int) string {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return "cannot find out where the core dump is: " + err.Error()
	}
	usesPID, _ := os.ReadFile("/proc/sys/kernel/core_uses_pid")
	cwd := ""
	if c, err := dir.Config(); err == nil {
		cwd, _ = c.Lookup(spool.KeyCwd)
	}
	return corePlace(strings.TrimSuffix(string(pattern), "\n"), strings.HasPrefix(string(usesPID), "1"), cwd, pid)
}

// corePlace says where the kernel puts a core dump by its core_pattern
// (core(5)). What is not known of the process stays a %-letter.
func corePlace(pattern string, usesPID bool, cwd string, pid int) string {
	number := strconv.Itoa(pid)
	if usesPID && !strings.Contains(pattern, "%p") {
		pattern += ".%p"
	}
	file := strings.NewReplacer("%%", "%", "%p", number, "%P", number).Replace(pattern)
	switch pattern[:min(len(pattern), 1)] {
	case "|":
		program, _, _ := strings.Cut(pattern[1:], " ")
		return "the core dump was given to " + program
	case "@":
		return "the core dump was given to the socket " + strings.TrimLeft(pattern, "@")
	case "/":
		return "the core dump is " + file
	}
	return "the core dump is " + file + " in the working directory, which was " + cwd + " at the start"
}
